//! Tests of the client's parts together.
