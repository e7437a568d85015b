//! A connection whose other end must read: one that does not is given up.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// How long the other end may read nothing of what is to be written.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Writes to it fail when nothing could be written for so long.
#[derive(Debug)]
pub(super) struct Impatient<S> {
    inner: S,
    patience: Duration,
    /// Runs while something is to be written and cannot be.
    until: Option<Pin<Box<Sleep>>>,
}

impl<S> Impatient<S> {
    pub(super) const fn new(inner: S, patience: Duration) -> Self {
        Self { inner, patience, until: None }
    }

    /// What came of a write, and whether its time is up.
    fn judge<T>(
        &mut self,
        cx: &mut Context<'_>,
        wrote: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if wrote.is_ready() {
            self.until = None;
            return wrote;
        }
        let patience = self.patience;
        let until = self.until.get_or_insert_with(|| Box::pin(sleep(patience)));
        ready!(until.as_mut().poll(cx));
        until.as_mut().reset(Instant::now() + patience);
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the other end does not read")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Impatient<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Impatient<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let wrote = Pin::new(&mut this.inner).poll_write(cx, bytes);
        this.judge(cx, wrote)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let wrote = Pin::new(&mut this.inner).poll_write_vectored(cx, slices);
        this.judge(cx, wrote)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_does_not_read_is_given_up() {
        let (ours, mut theirs) = duplex(4);
        let mut ours = Impatient::new(ours, PATIENCE);
        let begun = Instant::now();
        ours.write_all(b"four").await.unwrap();
        let failed = ours.write_all(b"more").await.unwrap_err();
        assert_eq!((failed.kind(), begun.elapsed()), (io::ErrorKind::TimedOut, PATIENCE));
        // Whoever reads slowly is not.
        let reads = async {
            let mut all = [0; 12];
            for part in all.chunks_mut(4) {
                tokio::time::sleep(PATIENCE / 2).await;
                theirs.read_exact(part).await.unwrap();
            }
        };
        let (wrote, ()) = tokio::join!(ours.write_all(b"and eight"), reads);
        wrote.unwrap();
    }
}
