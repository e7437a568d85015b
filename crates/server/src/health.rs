//! Whether the daemon works, is ready, and is there.
