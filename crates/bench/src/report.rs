//! What a benchmark found: rows beside their baselines, as a table and as JSON.

use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;

/// All rows of one benchmark.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) benchmark: &'static str,
    pub(crate) quick: bool,
    pub(crate) rows: Vec<Row>,
}

/// One measurement.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) unit: &'static str,
    pub(crate) ours: f64,
    /// What stands beside it, and its figure in the same unit from the same run.
    pub(crate) baseline: Option<(String, f64)>,
    /// What must hold, if anything is promised.
    pub(crate) promise: Option<Promise>,
}

/// A promise: a ratio to the baseline, or a figure, that is not exceeded, or that is reached.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) enum Promise {
    RatioAtMost(f64),
    AtMost(f64),
    RatioAtLeast(f64),
    AtLeast(f64),
}

impl Row {
    pub(crate) fn new(what: impl Into<String>, unit: &'static str, ours: f64) -> Self {
        Self { what: what.into(), unit, ours, baseline: None, promise: None }
    }

    pub(crate) fn beside(mut self, name: impl Into<String>, figure: f64) -> Self {
        self.baseline = Some((name.into(), figure));
        self
    }

    pub(crate) const fn promised(mut self, promise: Promise) -> Self {
        self.promise = Some(promise);
        self
    }

    fn ratio(&self) -> Option<f64> {
        self.baseline.as_ref().map(|(_, baseline)| self.ours / baseline)
    }

    fn holds(&self) -> Option<bool> {
        match self.promise? {
            Promise::RatioAtMost(most) => self.ratio().map(|ratio| ratio <= most),
            Promise::AtMost(most) => Some(self.ours <= most),
            Promise::RatioAtLeast(least) => self.ratio().map(|ratio| ratio >= least),
            Promise::AtLeast(least) => Some(self.ours >= least),
        }
    }
}

impl Report {
    pub(crate) const fn new(benchmark: &'static str, quick: bool) -> Self {
        Self { benchmark, quick, rows: Vec::new() }
    }

    /// The rows that break their promise.
    pub(crate) fn broken(&self) -> usize {
        self.rows.iter().filter(|row| row.holds() == Some(false)).count()
    }

    pub(crate) fn table(&self) -> String {
        let header = ["what", "ours", "baseline", "", "ratio", "promise", ""].map(String::from);
        let mut lines = vec![header];
        lines.extend(self.rows.iter().map(cells));
        let mut widths = [0; 7];
        for line in &lines {
            for (width, cell) in widths.iter_mut().zip(line) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let mut table = String::new();
        for (at, line) in lines.iter().enumerate() {
            let cells = line.iter().zip(widths).enumerate().map(|(column, (cell, width))| {
                // Figures to the right, words to the left.
                if matches!(column, 1 | 2 | 4) {
                    format!("{cell:>width$}")
                } else {
                    format!("{cell:<width$}")
                }
            });
            let text = cells.collect::<Vec<_>>().join("  ");
            writeln!(table, "{}", text.trim_end()).ok();
            if at == 0 {
                let rule = "-".repeat(widths.iter().sum::<usize>() + 2 * (widths.len() - 1));
                writeln!(table, "{rule}").ok();
            }
        }
        table
    }

    pub(crate) fn write(&self, path: &Path) -> std::io::Result<()> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(path, serde_json::to_vec_pretty(self)?)
    }
}

fn cells(row: &Row) -> [String; 7] {
    let (baseline, name) = match &row.baseline {
        Some((name, figure)) => (figured(*figure, row.unit), name.clone()),
        None => (String::new(), String::new()),
    };
    let promise = match row.promise {
        Some(Promise::RatioAtMost(most)) => format!("<= {most} x"),
        Some(Promise::AtMost(most)) => format!("<= {}", figured(most, row.unit)),
        Some(Promise::RatioAtLeast(least)) => format!(">= {least} x"),
        Some(Promise::AtLeast(least)) => format!(">= {}", figured(least, row.unit)),
        None => String::new(),
    };
    let verdict = match row.holds() {
        Some(true) => "holds",
        Some(false) => "BROKEN",
        None => "",
    };
    [
        row.what.clone(),
        figured(row.ours, row.unit),
        baseline,
        name,
        row.ratio().map_or_else(String::new, |ratio| format!("{ratio:.2}")),
        promise,
        verdict.to_owned(),
    ]
}

fn figured(figure: f64, unit: &str) -> String {
    let digits = if figure >= 100.0 || figure == 0.0 { 0 } else { 1 };
    format!("{figure:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_are_kept_or_broken() {
        let row = |ours| Row::new("x", "ns", ours).beside("y", 10.0);
        let check = |row: Row, expected| assert_eq!(row.holds(), expected);
        check(row(20.0), None);
        check(row(20.0).promised(Promise::RatioAtMost(2.0)), Some(true));
        check(row(20.1).promised(Promise::RatioAtMost(2.0)), Some(false));
        check(row(5.0).promised(Promise::AtMost(4.0)), Some(false));
        check(row(8.0).promised(Promise::RatioAtLeast(0.8)), Some(true));
        check(row(7.9).promised(Promise::RatioAtLeast(0.8)), Some(false));
        check(row(4.0).promised(Promise::AtLeast(4.0)), Some(true));
        check(row(3.9).promised(Promise::AtLeast(4.0)), Some(false));
    }

    #[test]
    fn the_table_has_a_line_for_each_row() {
        let mut report = Report::new("kernel", true);
        report.rows.push(Row::new("a thing", "ns", 5.0).beside("tokio", 10.0));
        assert!(report.table().contains("a thing"), "{}", report.table());
        assert_eq!(report.table().lines().count(), 3);
    }
}
