//! Sockets: one thread per share of the connections, each with an epoll set.

pub mod connection;
pub mod output;
pub mod poll;
pub mod server;
pub mod transport;
