//! What must not harm the worker: bad input, broken systems, controllers that disappear.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

#[path = "../common/mod.rs"]
mod common;
mod input;
mod trouble;

use common::{Worker, trial};
use serde_json::{Value, json};

fn with(mut request: Value, pointer: &str, value: Value) -> Value {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let parent = request.pointer_mut(parent).unwrap();
    match parent {
        Value::Array(list) => list[key.parse::<usize>().unwrap()] = value,
        _ => parent[key] = value,
    }
    request
}

fn works(worker: &Worker) {
    let mut request = trial();
    request["schedule"]["stop_s"] = json!(0.2);
    worker.begin(&request);
    worker.sleep_until_s(0.25);
    let result = worker.finish();
    assert_eq!(result["audit"]["subscriptions"][0]["unique"], 1000, "{result}");
}
