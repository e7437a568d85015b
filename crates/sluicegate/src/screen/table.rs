//! Tables: aligned, as wide as the terminal, coloured where somebody looks.

use std::fmt;
use std::io::IsTerminal;

use comfy_table::presets::{NOTHING, UTF8_BORDERS_ONLY};
use comfy_table::{Attribute, CellAlignment, Color, ContentArrangement};

/// A table.
pub(crate) struct Table {
    inner: comfy_table::Table,
}

/// A cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) text: String,
    pub(crate) shade: Shade,
}

/// What a cell's colour says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Shade {
    /// Nothing.
    #[default]
    Plain,
    /// As it should be.
    Good,
    /// To be watched.
    Warn,
    /// To be acted on.
    Bad,
    /// Of little interest.
    Faint,
}

/// Where the texts of a column stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

impl Table {
    /// A table with these columns.
    pub(crate) fn new<'a>(columns: impl IntoIterator<Item = (&'a str, Align)>) -> Self {
        let mut inner = comfy_table::Table::new();
        let columns: Vec<_> = columns.into_iter().collect();
        let title = |(title, _): &(&str, Align)| {
            comfy_table::Cell::new(title).add_attribute(Attribute::Bold)
        };
        inner.set_header(columns.iter().map(title).collect::<Vec<_>>());
        let mut table = Self::dressed(inner);
        for (place, (_, align)) in columns.iter().enumerate() {
            table.align(place, *align);
        }
        table
    }

    /// Two columns without titles: names and what they are.
    pub(crate) fn facts() -> Self {
        Self::dressed(comfy_table::Table::new())
    }

    fn dressed(mut inner: comfy_table::Table) -> Self {
        // Lines around it are for people; whoever reads from a pipe wants columns.
        if std::io::stdout().is_terminal() {
            inner.load_style(UTF8_BORDERS_ONLY.with_rounded_corners());
        } else {
            inner.load_style(NOTHING);
        }
        inner.set_content_arrangement(ContentArrangement::Dynamic);
        if let Some(width) = inner.width() {
            inner.set_width(width);
        }
        // From here on it asks no terminal by itself.
        inner.force_no_tty();
        if coloured() {
            inner.enforce_styling();
        }
        Self { inner }
    }

    fn align(&mut self, column: usize, align: Align) {
        if let Some(column) = self.inner.column_mut(column) {
            column.set_cell_alignment(match align {
                Align::Left => CellAlignment::Left,
                Align::Right => CellAlignment::Right,
            });
        }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let cells = cells.into_iter().map(Cell::drawn);
        self.inner.add_row(cells.collect::<Vec<_>>());
    }
}

impl Cell {
    /// A cell. Control characters of whoever named something do not reach the terminal.
    pub(crate) fn new(text: impl fmt::Display) -> Self {
        Self { text: plain(&text.to_string()), shade: Shade::Plain }
    }

    /// The same in another colour.
    pub(crate) fn shaded(self, shade: Shade) -> Self {
        Self { shade, ..self }
    }

    /// For what is not there.
    pub(crate) fn none() -> Self {
        Self::new("–").shaded(Shade::Faint)
    }

    fn drawn(self) -> comfy_table::Cell {
        let cell = comfy_table::Cell::new(self.text);
        match self.shade {
            Shade::Plain => cell,
            Shade::Good => cell.fg(Color::Green),
            Shade::Warn => cell.fg(Color::Yellow),
            Shade::Bad => cell.fg(Color::Red).add_attribute(Attribute::Bold),
            Shade::Faint => cell.fg(Color::DarkGrey),
        }
    }
}

/// How wide the terminal is, if there is one.
pub(crate) fn width() -> Option<usize> {
    comfy_table::Table::new().width().map(usize::from)
}

/// A text without control characters and without those that turn its direction.
pub(crate) fn plain(text: &str) -> String {
    let shown = |c: char| match c {
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        c if c.is_control() => '\u{fffd}',
        c => c,
    };
    text.chars().map(shown).collect()
}

/// Whether colours are wanted: by somebody who looks, and has not said no.
fn coloured() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    std::io::stdout().is_terminal() && !refused
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
