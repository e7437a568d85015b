//! SQS, as ministack emulates it: FIFO groups, visibility and redrive, all in memory.
//!
//! It writes its state down when it is asked to end, and not before: a server that is killed has
//! forgotten everything, its queues too.

use std::io;

use super::folder::Folder;
use super::plan::{Plan, Spec, free_ports, local};
use crate::needs::python_program;

pub(super) fn plan(folder: &Folder) -> io::Result<Plan> {
    let [port] = free_ports()?;
    let program = python_program("ministack")
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "ministack is not there"))?;
    let home = folder.make("home")?;
    let server = Spec::new(program)
        .env("BIND_HOST", "127.0.0.1")
        .env("MINISTACK_HOST", "127.0.0.1")
        .env("GATEWAY_PORT", port.to_string())
        .env("SERVICES", "sqs")
        .env("LOG_LEVEL", "ERROR")
        .env("PERSIST_STATE", "1")
        .env("STATE_DIR", folder.make("state")?)
        .env("TMPDIR", home.clone())
        .env("HOME", home);
    Ok(Plan {
        url: format!("http://127.0.0.1:{port}"),
        address: local(port),
        management_url: None,
        servers: vec![server],
    })
}
