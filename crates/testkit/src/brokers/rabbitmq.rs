//! RabbitMQ: one node with its own port mapper, cookie and code path.
//!
//! The package's commands on `PATH` are wrappers that switch users and write to system folders, so
//! the node is started from the package's inner folder, with every path given.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use nix::sys::signal::Signal;

use super::folder::Folder;
use super::plan::{Plan, Spec, free_ports, local, program};

/// The optional plugins that are kept. A node looks up every module in every plugin's folder, so
/// leaving the others out halves its start.
const PLUGINS: &[&str] = &[
    "rabbitmq_management",
    "rabbitmq_management_agent",
    "rabbitmq_prelaunch",
    "rabbitmq_web_dispatch",
];

struct Ports {
    amqp: u16,
    management: u16,
    distribution: u16,
    mapper: u16,
}

pub(super) fn plan(folder: &Folder) -> io::Result<Plan> {
    let [amqp, management, distribution, mapper] = free_ports()?;
    let ports = Ports { amqp, management, distribution, mapper };
    folder.make("home")?;
    folder.write("home/.erlang.cookie", "SLUICEGATETEST")?;
    let cookie = folder.at("home/.erlang.cookie");
    fs::set_permissions(cookie, fs::Permissions::from_mode(0o400))?;
    let package = slim(folder)?;
    folder.write("enabled_plugins", "[rabbitmq_management].\n")?;
    folder.write("rabbitmq.conf", &settings(&ports))?;
    let node = Spec::new(format!("{package}/sbin/rabbitmq-server"));
    let mut node = environment(node, folder, &package, &ports);
    // Its data die with it, and a polite end takes seconds.
    node.farewell = Signal::SIGKILL;
    let mapper_port = mapper.to_string();
    let mapper = Spec::new(program("epmd")?)
        .args(["-port", &mapper_port, "-address", "127.0.0.1"])
        .env("HOME", folder.at("home"));
    Ok(Plan {
        url: format!("amqp://guest:guest@127.0.0.1:{amqp}/%2f"),
        address: local(amqp),
        management_url: Some(format!("http://guest:guest@127.0.0.1:{management}")),
        servers: vec![mapper, node],
    })
}

fn settings(ports: &Ports) -> String {
    format!(
        "listeners.tcp.1 = 127.0.0.1:{}\n\
         management.tcp.ip = 127.0.0.1\n\
         management.tcp.port = {}\n\
         log.console = true\n\
         log.console.level = warning\n\
         log.file = false\n\
         disk_free_limit.absolute = 50MB\n\
         vm_memory_high_watermark.absolute = 1GB\n",
        ports.amqp, ports.management
    )
}

fn environment(node: Spec, folder: &Folder, package: &str, ports: &Ports) -> Spec {
    node.env("HOME", folder.at("home"))
        .env("ERL_EPMD_PORT", ports.mapper.to_string())
        .env("ERL_EPMD_ADDRESS", "127.0.0.1")
        .env("RABBITMQ_HOME", package)
        .env("RABBITMQ_SCRIPTS_DIR", format!("{package}/sbin"))
        .env("RABBITMQ_PLUGINS_DIR", format!("{package}/plugins"))
        // A file that is not there: the system's own must not be read.
        .env("RABBITMQ_CONF_ENV_FILE", folder.at("none"))
        .env("RABBITMQ_NODENAME", format!("test{}@localhost", ports.amqp))
        .env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1")
        .env("RABBITMQ_NODE_PORT", ports.amqp.to_string())
        .env("RABBITMQ_DIST_PORT", ports.distribution.to_string())
        .env("RABBITMQ_CONFIG_FILE", folder.at("rabbitmq.conf"))
        .env("RABBITMQ_ADVANCED_CONFIG_FILE", folder.at("advanced.config"))
        .env("RABBITMQ_ENABLED_PLUGINS_FILE", folder.at("enabled_plugins"))
        .env("RABBITMQ_GENERATED_CONFIG_DIR", folder.at("generated"))
        .env("RABBITMQ_MNESIA_BASE", folder.at("mnesia"))
        .env("RABBITMQ_LOG_BASE", folder.at("log"))
        .env("RABBITMQ_PID_FILE", folder.at("pid"))
        // By default every node binds its first scheduler to the same core.
        .env("RABBITMQ_SCHEDULER_BIND_TYPE", "u")
        .env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", "-kernel inet_dist_use_interface {127,0,0,1}")
        // The start script then becomes the node, so its id is the node's.
        .env("RUNNING_UNDER_SYSTEMD", "true")
}

/// A copy of the package made of links, without the plugins that nobody uses.
fn slim(folder: &Folder) -> io::Result<String> {
    let script = fs::canonicalize(program("/usr/lib/rabbitmq/bin/rabbitmq-server")?)?;
    let package = script.ancestors().nth(2).unwrap_or(&script).to_owned();
    let slim = folder.make("package")?;
    for part in ["sbin", "escript", "plugins"] {
        let inside = folder.make(&format!("package/{part}"))?;
        for entry in fs::read_dir(package.join(part))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if part != "plugins" || keeps(&name) {
                symlink(entry.path(), Path::new(&inside).join(name))?;
            }
        }
    }
    Ok(slim)
}

fn keeps(plugin: &str) -> bool {
    let name = plugin.split('-').next().unwrap_or(plugin);
    !name.starts_with("rabbitmq_") || PLUGINS.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::keeps;

    #[test]
    fn libraries_and_chosen_plugins_are_kept() {
        let cases = [
            ("ra-2.2.0", true),
            ("rabbit-3.10.8", true),
            ("rabbit_common-3.10.8", true),
            ("rabbitmq_management-3.10.8", true),
            ("rabbitmq_mqtt-3.10.8", false),
        ];
        for (plugin, kept) in cases {
            assert_eq!(keeps(plugin), kept, "{plugin}");
        }
    }
}
