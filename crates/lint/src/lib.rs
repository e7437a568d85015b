//! The lint.
