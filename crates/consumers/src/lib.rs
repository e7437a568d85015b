//! Consumers written in Rust: declared, validated together, run with bounded workers.
