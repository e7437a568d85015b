//! Opening the file: the lock, the connections and their settings.

use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::schema;

/// Why a state file could not be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process serves it.
    Served {
        /// The file.
        path: PathBuf,
    },
    /// It was written by a later version.
    Newer {
        /// The version of its tables.
        found: i64,
        /// The latest one that is known here.
        known: i64,
    },
    /// It was written by an earlier version, which serves it.
    Older {
        /// The version of its tables.
        found: i64,
        /// The one that is known here.
        known: i64,
    },
    /// It is a database of something else.
    Foreign,
    /// It is damaged, or no database at all.
    Corrupt {
        /// What was found.
        cause: String,
    },
    /// The file, or the one that locks it, could not be used.
    Io {
        /// Which one.
        path: PathBuf,
        /// What happened.
        cause: io::Error,
    },
    /// The database said no.
    Sqlite(String),
}

/// Held as long as the file is served.
#[derive(Debug)]
pub(crate) struct Lock {
    /// Closing it gives the lock back.
    _file: File,
}

/// How long a connection waits for another process that writes.
pub(crate) const BUSY: Duration = Duration::from_secs(5);
/// 32 MiB of pages for the writer, a quarter of that for a reader, in KiB and negative as wanted.
const WRITER_CACHE: i64 = -32 * 1024;
const READER_CACHE: i64 = -8 * 1024;
/// After how many pages of the log they are copied into the file: 16 MiB.
const CHECKPOINT_PAGES: i64 = 4096;
/// What is left of the log's file when it begins anew.
const LOG_LIMIT: i64 = 64 * 1024 * 1024;
const STATEMENTS: usize = 64;

impl Lock {
    pub(crate) fn take(path: &Path) -> Result<Self, OpenError> {
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

/// A connection that writes, with the tables as this version knows them.
pub(crate) fn writer(
    path: &Path,
    max_pages: Option<u32>,
    busy: Option<Duration>,
    serves: bool,
) -> Result<Connection, OpenError> {
    drop(make(path)?);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags)?;
    settle_in(&connection)?;
    // What is not ours is left as it is.
    schema::inspect(&connection)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.pragma_update(None, "cache_size", WRITER_CACHE)?;
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    connection.pragma_update(None, "journal_size_limit", LOG_LIMIT)?;
    if let Some(pages) = max_pages {
        connection.pragma_update(None, "max_page_count", pages)?;
    }
    migrate(path, &mut connection, serves)?;
    connection.busy_timeout(busy.unwrap_or(BUSY))?;
    Ok(connection)
}

/// Brings the tables up to date, unless another process serves them as they are.
fn migrate(path: &Path, connection: &mut Connection, serves: bool) -> Result<(), OpenError> {
    let (found, known) = (schema::inspect(connection)?, schema::KNOWN);
    let is_old = (1..known).contains(&found);
    let _lock = match (is_old && !serves).then(|| Lock::take(path)).transpose() {
        Err(OpenError::Served { .. }) => return Err(OpenError::Older { found, known }),
        lock => lock?,
    };
    schema::migrate(connection)
}

/// A connection that only reads.
pub(crate) fn reader(path: &Path) -> Result<Connection, OpenError> {
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

impl From<rusqlite::Error> for OpenError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                Self::Corrupt { cause: error.to_string() }
            }
            _ => Self::Sqlite(error.to_string()),
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Served { path } => {
                write!(f, "{} is already served by another process", path.display())
            }
            Self::Newer { found, known } => write!(
                f,
                "the state file has tables of version {found}, and this program knows up to {known}: \
                 use a later version of the program"
            ),
            Self::Older { found, known } => write!(
                f,
                "the state file has tables of version {found}, and this program needs {known}: restart \
                 the program that serves it with this version"
            ),
            Self::Foreign => f.write_str("the file is a database of something else"),
            Self::Corrupt { cause } => write!(f, "the state file is damaged: {cause}"),
            Self::Io { path, cause } => write!(f, "{}: {cause}", path.display()),
            Self::Sqlite(cause) => write!(f, "the state file could not be opened: {cause}"),
        }
    }
}

impl std::error::Error for OpenError {}
