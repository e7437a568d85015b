//! What goes wrong with a file, in words.

/// What is said of a file that somebody else has locked.
pub const HELD: &str = "another process holds the state file for too long";

/// What an error of the database is called outside.
#[must_use]
pub fn cause(error: &rusqlite::Error) -> String {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DiskFull) => "the disk is full".to_owned(),
        Some(rusqlite::ErrorCode::SystemIoFailure) => format!("the disk failed: {error}"),
        Some(rusqlite::ErrorCode::DatabaseBusy) => HELD.to_owned(),
        Some(rusqlite::ErrorCode::DatabaseCorrupt | rusqlite::ErrorCode::NotADatabase) => {
            format!("the state file is damaged: {error}")
        }
        _ => error.to_string(),
    }
}
