//! Structured concurrency.
