//! Opening the file: the lock, the connections and their settings.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::OpenError;

/// Held as long as the file is served.
#[derive(Debug)]
pub struct Lock {
    /// Closing it gives the lock back.
    _file: File,
}

/// What marks a file as ours: "SLGT".
pub const APPLICATION_ID: i32 = 0x534C_4754;
/// How long a connection waits for another process that writes.
pub const BUSY: Duration = Duration::from_secs(5);
/// 32 MiB of pages for the writer, a quarter of that for a reader, in KiB and negative as wanted.
const WRITER_CACHE: i64 = -32 * 1024;
const READER_CACHE: i64 = -8 * 1024;
/// After how many pages of the log they are copied into the file: 16 MiB.
const CHECKPOINT_PAGES: i64 = 4096;
/// What is left of the log's file when it begins anew.
const LOG_LIMIT: i64 = 64 * 1024 * 1024;
const STATEMENTS: usize = 64;

impl Lock {
    /// Locks the file beside the state file.
    ///
    /// # Errors
    /// [`OpenError::Served`] if another process has it, [`OpenError::Io`] if it cannot be made.
    pub fn take(path: &Path) -> Result<Self, OpenError> {
        let beside = beside(path);
        let file = make(&beside)?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(OpenError::Served { path: path.to_owned() }),
            Err(TryLockError::Error(cause)) => Err(OpenError::Io { path: beside, cause }),
        }
    }
}

/// The file beside the state file that is locked: locks on the state file itself are the database's.
/// It is the same one by whatever name the state file is called.
fn beside(path: &Path) -> PathBuf {
    let mut name = resolved(path).into_os_string();
    name.push(".lock");
    name.into()
}

/// The file that a path leads to, which need not be there yet: links are followed as opening it does.
fn resolved(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    // As many as the system follows.
    for _ in 0..40 {
        if let Ok(whole) = path.canonicalize() {
            return whole;
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or_else(|| Path::new("."));
        let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        match path.read_link() {
            Ok(target) => path = folder.join(target),
            Err(_) => {
                return path.file_name().map_or_else(|| path.clone(), |name| folder.join(name));
            }
        }
    }
    path
}

/// Opens a file to write, and makes it if it is not there: for nobody else to read, because tokens are
/// in it.
fn make(path: &Path) -> Result<File, OpenError> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map_err(|cause| OpenError::Io { path: path.to_owned(), cause })
}

/// A connection that writes to a file, which is made if it is not there. Whose file it is, and of which version, is looked
/// at before anything of it is changed.
///
/// # Errors
/// If it cannot be used, and whatever the look finds.
pub fn writer(
    path: &Path,
    max_pages: Option<u32>,
    inspect: impl FnOnce(&Connection) -> Result<(), OpenError>,
) -> Result<Connection, OpenError> {
    drop(make(path)?);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    settle_in(&connection)?;
    // What is not ours is left as it is.
    inspect(&connection)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.pragma_update(None, "cache_size", WRITER_CACHE)?;
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    connection.pragma_update(None, "journal_size_limit", LOG_LIMIT)?;
    if let Some(pages) = max_pages {
        connection.pragma_update(None, "max_page_count", pages)?;
    }
    Ok(connection)
}

/// Says no to a database of something else.
///
/// # Errors
/// [`OpenError::Foreign`], and what keeps the file from being read.
pub fn check_owner(connection: &Connection) -> Result<(), OpenError> {
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", (), |row| row.get(0))?;
    let owner: i32 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    match tables > 0 && owner != APPLICATION_ID {
        true => Err(OpenError::Foreign),
        false => Ok(()),
    }
}

/// A connection that only reads.
///
/// # Errors
/// If the file cannot be read.
pub fn reader(path: &Path) -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    settle_in(&connection)?;
    connection.pragma_update(None, "cache_size", READER_CACHE)?;
    Ok(connection)
}

fn settle_in(connection: &Connection) -> Result<(), rusqlite::Error> {
    connection.busy_timeout(BUSY)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    // Without it the database plans a statement anew for almost every value that is bound to it.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(())
}
