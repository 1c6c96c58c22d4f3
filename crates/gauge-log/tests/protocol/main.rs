//! Every API in every version that is offered, spoken to with messages of an independent implementation.

#![allow(
    clippy::unwrap_used,
    reason = "a test ends where something unexpected happens"
)]

mod batches;
#[path = "../common/mod.rs"]
mod common;
mod groups;
mod topics;

use common::*;
use gauge_log::api::APIS;
use gauge_log::storage::segment::Durability;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::Request;

fn versions<R: Request>() -> std::ops::RangeInclusive<i16> {
    let api = APIS.iter().find(|api| api.key == R::KEY).unwrap();
    api.min..=api.max
}

#[test]
fn versions_are_told_even_to_clients_from_the_future() {
    let directory = Directory::new("versions");
    let running = serve(settings(&directory.0, Durability::Async));
    let mut client = Client::connect(running.address);
    for version in versions::<ApiVersionsRequest>() {
        let request = ApiVersionsRequest::default()
            .with_client_software_name(name("test"))
            .with_client_software_version(name("1"));
        let response = client.call(&request, version);
        assert_eq!(response.error_code, 0);
        assert_eq!(response.api_keys.len(), APIS.len());
    }
    let mut frame = client.frame(&ApiVersionsRequest::default(), 3);
    frame[7] = 99;
    std::io::Write::write_all(&mut client.stream, &frame).unwrap();
    let response = client.receive::<ApiVersionsRequest>(0).unwrap();
    assert_eq!(response.error_code, 35);
    assert!(response.api_keys.iter().any(|api| api.api_key == 18));
    stop(running);
}
