//! PostgreSQL: a fresh cluster that outlives its server, but not the machine.

use std::io;

use nix::sys::signal::Signal;
use nix::unistd::{User, getuid};

use super::folder::Folder;
use super::plan::{Plan, Spec, free_ports, local, program};

/// Makes the cluster on the first start, then becomes the server. What is in its file a session can change: who measures
/// turns durability on.
const SCRIPT: &str = r#"
bin=$1; shift
if [ ! -e data/PG_VERSION ]; then
    "$bin/initdb" -D data -U postgres -A trust -E UTF8 --locale=C -N || exit
    echo "fsync = off" >> data/postgresql.conf
    echo "full_page_writes = off" >> data/postgresql.conf
fi
exec "$bin/postgres" -D data "$@"
"#;

pub(super) fn plan(folder: &Folder) -> io::Result<Plan> {
    let [port] = free_ports()?;
    let postgres = program("/usr/lib/postgresql/*/bin/postgres")?;
    let programs = postgres.parent().unwrap_or(&postgres).display().to_string();
    let sockets = format!("unix_socket_directories={}", folder.path().display());
    let port_text = port.to_string();
    let mut server = Spec::new("/bin/sh")
        .args(["-c", SCRIPT, "postgres", &programs, "-p", &port_text])
        .args(["-c", "listen_addresses=127.0.0.1", "-c", &sockets])
        .args(["-c", "max_connections=300", "-c", "shared_buffers=64MB"])
        .env("HOME", folder.at(""));
    server.user = unprivileged(folder)?;
    // The polite signal waits for clients to leave; this one does not.
    server.farewell = Signal::SIGQUIT;
    Ok(Plan {
        url: format!("postgres://postgres@127.0.0.1:{port}/postgres"),
        address: local(port),
        management_url: None,
        servers: vec![server],
    })
}

/// PostgreSQL refuses to run as root: then the folder goes to another user, and the server too.
fn unprivileged(folder: &Folder) -> io::Result<Option<String>> {
    if !getuid().is_root() {
        return Ok(None);
    }
    for name in ["postgres", "nobody"] {
        if let Some(user) = User::from_name(name)? {
            std::os::unix::fs::chown(
                folder.path(),
                Some(user.uid.as_raw()),
                Some(user.gid.as_raw()),
            )?;
            return Ok(Some(name.to_owned()));
        }
    }
    Err(io::Error::other("no user but root to run PostgreSQL as"))
}
