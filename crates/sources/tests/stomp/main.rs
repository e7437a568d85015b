//! ActiveMQ Classic over STOMP, against the real broker.

#[cfg(test)]
mod contract;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod messages;
#[cfg(test)]
mod opening;
#[cfg(test)]
mod order;
#[cfg(test)]
mod peer;
#[cfg(test)]
mod rig;
#[cfg(test)]
mod scheduler;
#[cfg(test)]
mod settling;
#[cfg(test)]
mod stage;
#[cfg(test)]
mod tls;
#[cfg(test)]
mod wire;
