//! NATS with JetStream on disk.

use std::io;

use super::folder::Folder;
use super::plan::{Plan, Spec, free_ports, local, program};

pub(super) fn plan(folder: &Folder) -> io::Result<Plan> {
    let [port, monitor] = free_ports()?;
    let arguments = format!("-a 127.0.0.1 -p {port} -m {monitor} -js -sd");
    let server = Spec::new(program("nats-server")?)
        .args(arguments.split(' '))
        .args([folder.make("jetstream")?])
        .env("HOME", folder.at(""));
    Ok(Plan {
        url: format!("nats://127.0.0.1:{port}"),
        address: local(port),
        management_url: Some(format!("http://127.0.0.1:{monitor}")),
        servers: vec![server],
    })
}
