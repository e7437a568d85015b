//! What every source that is reached over the network does the same way.

pub(crate) mod parameters;
pub(crate) mod pause;
pub(crate) mod tls;
