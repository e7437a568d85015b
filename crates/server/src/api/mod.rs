//! The HTTP API: what SURFACE names, over one daemon.

use sluicegate_tasks::Context;
use tokio::net::TcpListener;

use crate::daemon::Daemon;

/// Serves until the context ends.
///
/// # Errors
/// When the listener cannot be used.
pub async fn serve(daemon: Daemon, listener: TcpListener, cx: &Context) -> std::io::Result<()> {
    let _ = (daemon, listener);
    cx.cancelled().await;
    Ok(())
}
