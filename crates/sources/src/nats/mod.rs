//! NATS JetStream: a stream is the queue, a durable pull consumer hands it out.
//!
//! | file | is |
//! |---|---|
//! | `settings` | the address, read and checked |
//! | `connect`, `attach` | reaching the server, and finding or making stream and consumer |
//! | `ghosts` | what a killed server has forgotten |
//! | `front`, `hold` | what is here, pure: what was received, handed out, delayed, done |
//! | `pull` | the one task: connects, asks for as much as is wanted, keeps what waits here alive |
//! | `mailbox` | where the answers arrive, also the late ones |
//! | `tally` | the number of attempts, in a stream of its own |
//! | `settle`, `publish`, `message` | telling the server; bodies and headers |
//! | `source` | all of it as a [`Source`](sluicegate_dispatch::Source) |
//!
//! JetStream takes an acknowledgement of any delivery of a message, also of one whose window has
//! ended. So which delivery of a message is the current one, and whether its window still runs, is
//! decided here, in the front.

mod attach;
mod connect;
mod front;
mod ghosts;
mod hold;
mod mailbox;
mod message;
mod publish;
mod pull;
mod settings;
mod settle;
mod shared;
mod source;
mod tally;

pub use settings::NatsSettings;
pub use source::NatsSource;
