//! The `sluicegate` command: which one was asked for, and how it ended.

mod client;
mod commands;
mod exit;
mod screen;

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// Messages are many small allocations that often end on another thread than they began on.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    // Before anything slow: agents are started by this.
    #[cfg(target_os = "linux")]
    if let Some(code) = sluicegate_executors::process::keeper::run_if_asked() {
        return code;
    }
    #[cfg(target_os = "linux")]
    if let Some(code) = commands::demo::agents::stand_in::run_if_asked() {
        return code;
    }
    // Whoever opens a TLS connection finds it; a second one would be refused, and there is none.
    rustls::crypto::aws_lc_rs::default_provider().install_default().ok();
    let mut command = commands::command();
    let given = command.get_matches_mut();
    let Some((name, given)) = given.subcommand() else {
        return exit::code(screen::line(command.render_help()).map_err(Into::into));
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return exit::code(Err(error.into())),
    };
    let ended = runtime.block_on(commands::run(name, given));
    // A thread that reads from a terminal cannot be woken: it ends with the program.
    runtime.shutdown_background();
    exit::code(ended)
}
