//! AWS SQS, standard and FIFO.
//!
//! | file | keeps |
//! |---|---|
//! | `settings` | the address of a queue and how it is received from |
//! | `client` | how the service is reached: credentials, TLS, deadlines |
//! | `trouble` | what an error of the service means |
//! | `books` | pure: what is out under which receipt, what is over, what rests until when |
//! | `recent` | pure: a bounded memory |
//! | `incoming` | a received message as an envelope |
//! | `polls` | long polls, which outlive the receives they were begun for |
//! | `batches` | calls for up to ten messages, each with a fate of its own |
//! | `settle` | settling, extending, burying |
//! | `publish` | taking messages in |
//! | `source` | all of it as a source |

mod batches;
mod books;
mod client;
mod incoming;
mod polls;
mod publish;
mod recent;
mod settings;
mod settle;
mod source;
mod trouble;

pub use settings::SqsSettings;
pub use source::SqsSource;
