//! What people see: lines, tables, colours, and times in words.

mod table;
pub(crate) mod time;

use std::fmt;
use std::io::{self, Write};

pub(crate) use table::{Align, Cell, Shade, Table, plain, width};

/// Prints a line. `println!` would panic when nobody reads any more.
pub(crate) fn line(text: impl fmt::Display) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()
}
