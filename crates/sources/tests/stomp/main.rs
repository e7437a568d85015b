//! ActiveMQ Classic over STOMP, against the real broker.

#[cfg(test)]
mod contract;
#[cfg(test)]
mod rig;
