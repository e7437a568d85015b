//! Round trips, frames in pieces, and garbage.
