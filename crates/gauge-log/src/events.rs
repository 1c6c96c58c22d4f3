//! The event file: one JSON object per line, for whoever watches the log by machine.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

/// Where events go; nowhere without a file.
#[derive(Debug, Default)]
pub struct Events {
    file: Option<Mutex<File>>,
}

impl Events {
    /// Appends to the file at `path`; without a path, events are dropped.
    pub fn open(path: Option<&Path>) -> io::Result<Self> {
        let file = path
            .map(|path| OpenOptions::new().create(true).append(true).open(path))
            .transpose()?;
        Ok(Self {
            file: file.map(Mutex::new),
        })
    }

    /// Writes one event: `{"time_ms": ..., "event": kind, ...fields}`. A full disk loses events, never the log.
    pub fn write(&self, kind: &str, fields: Value) {
        let Some(file) = &self.file else { return };
        let time_ms = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |age| age.as_millis() as u64);
        let mut event = json!({"time_ms": time_ms, "event": kind});
        if let (Value::Object(event), Value::Object(fields)) = (&mut event, fields) {
            event.extend(fields);
        }
        let line = format!("{event}\n");
        let _ = crate::shared::lock(file).write_all(line.as_bytes());
    }
}
