//! A wrong router is caught.
