//! The operator's views: lists of the server as tables, or as the JSON that they are.
//!
//! A view is data: where the list is, what it can be filtered by, and its columns.

mod breakers;
mod fields;
mod groups;
mod inflight;
mod parked;
mod pauses;
mod pools;
mod queues;
mod requests;
pub(super) mod status;
mod tenants;
mod warnings;
mod workers;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use jiff::Timestamp;
use serde_json::Value;

use crate::client::{self, Client};
use crate::exit::Failure;
use crate::screen::{self, Align, Cell, Table};

/// A view.
pub(super) struct View {
    /// The command, which is also the end of the list's path.
    name: &'static str,
    about: &'static str,
    /// What each of them is, for those that are none or too many.
    noun: &'static str,
    filters: &'static [Filter],
    columns: &'static [Column],
    examples: &'static str,
}

/// Something that a list can be filtered by.
struct Filter {
    name: &'static str,
    value_name: &'static str,
    help: &'static str,
}

/// A column.
struct Column {
    title: &'static str,
    align: Align,
    cell: fn(&Value, Timestamp) -> Cell,
    /// Whether it is left out where there is no room.
    extra: bool,
}

/// How many items are asked for at most.
const MOST: usize = 1_000_000;

const POOL: Filter = Filter { name: "pool", value_name: "CODE", help: "Only those of this pool" };

/// All of them but `status`, which is made of several.
pub(super) const VIEWS: [&View; 11] = [
    &pools::VIEW,
    &queues::VIEW,
    &inflight::VIEW,
    &groups::VIEW,
    &tenants::VIEW,
    WORKERS,
    &requests::VIEW,
    &warnings::VIEW,
    &breakers::VIEW,
    &parked::VIEW,
    PAUSES,
];

/// Which hosts are left alone.
pub(super) const PAUSES: &View = &pauses::VIEW;

/// What runs agents.
pub(super) const WORKERS: &View = &workers::VIEW;

/// `--json`.
pub(super) fn json_argument() -> Arg {
    Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print the server's JSON")
}

impl View {
    /// Its name.
    pub(super) const fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(self.name).about(self.about).after_help(self.examples);
        for filter in self.filters {
            command = command.arg(
                Arg::new(filter.name)
                    .long(filter.name)
                    .value_name(filter.value_name)
                    .help(filter.help),
            );
        }
        let limit = Arg::new("limit")
            .long("limit")
            .value_name("N")
            .default_value("100")
            .value_parser(value_parser!(u32).range(1..=MOST as i64))
            .help("How many at most");
        client::arguments(command.arg(limit).arg(json_argument()))
    }

    pub(super) async fn run(&self, given: &ArgMatches) -> Result<(), Failure> {
        let client = Client::of(given)?;
        let limit = given.get_one::<u32>("limit").map_or(100, |limit| *limit as usize);
        let filters: Vec<(&str, &str)> = self
            .filters
            .iter()
            .filter_map(|filter| Some((filter.name, given.get_one::<String>(filter.name)?)))
            .map(|(name, value)| (name, value.as_str()))
            .collect();
        let list = client.list(&format!("/api/v1/{}", self.name), &filters, limit).await?;
        if given.get_flag("json") {
            return Ok(screen::line(list)?);
        }
        let items = list.values();
        if items.is_empty() {
            return Ok(screen::line(format_args!("no {}", self.noun))?);
        }
        screen::line(self.table(&items, Timestamp::now()))?;
        if !list.is_whole() {
            screen::line(format_args!("there are more: --limit {}", (limit * 10).min(MOST)))?;
        }
        Ok(())
    }

    fn table(&self, items: &[Value], now: Timestamp) -> Table {
        let cells = |item: &Value| self.columns.iter().map(|one| (one.cell)(item, now)).collect();
        let rows: Vec<Vec<Cell>> = items.iter().map(cells).collect();
        let kept = self.fitting(&rows, screen::width());
        let column = |place: &usize| (self.columns[*place].title, self.columns[*place].align);
        let mut table = Table::new(kept.iter().map(column));
        for row in rows {
            table.row(kept.iter().map(|place| row[*place].clone()));
        }
        table
    }

    /// The columns that there is room for: of those that may be left out, the last goes first.
    fn fitting(&self, rows: &[Vec<Cell>], room: Option<usize>) -> Vec<usize> {
        let width = |place: &usize| {
            let texts = rows.iter().map(|row| row[*place].text.as_str());
            let widths = texts.chain([self.columns[*place].title]).map(|text| text.chars().count());
            // With a blank on both sides and one between two columns.
            widths.max().unwrap_or_default() + 3
        };
        let mut kept: Vec<usize> = (0..self.columns.len()).collect();
        let Some(room) = room else { return kept };
        while kept.iter().map(width).sum::<usize>() + 1 > room
            && let Some(last) = kept.iter().rposition(|place| self.columns[*place].extra)
        {
            kept.remove(last);
        }
        kept
    }
}

impl Column {
    /// It may be left out.
    const fn extra(self) -> Self {
        Self { extra: true, ..self }
    }
}

const fn left(title: &'static str, cell: fn(&Value, Timestamp) -> Cell) -> Column {
    Column { title, align: Align::Left, cell, extra: false }
}

const fn right(title: &'static str, cell: fn(&Value, Timestamp) -> Cell) -> Column {
    Column { title, align: Align::Right, cell, extra: false }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::{VIEWS, pools};

    #[test]
    fn where_there_is_no_room_columns_are_left_out_from_the_right() {
        let pool = json!({"code": "ORDERS", "running": 3, "concurrency": 20, "queued": 1_000});
        let cells = pools::VIEW.columns.iter().map(|one| (one.cell)(&pool, Timestamp::UNIX_EPOCH));
        let rows = [cells.collect::<Vec<_>>()];
        let titles = |room| {
            let kept = pools::VIEW.fitting(&rows, room);
            kept.into_iter().map(|place| pools::VIEW.columns[place].title).collect::<Vec<_>>()
        };
        assert_eq!(titles(None).len(), pools::VIEW.columns.len());
        assert_eq!(titles(Some(300)), titles(None));
        let least = ["pool", "running", "queued", "succeeded", "retried", "failed", "parked"];
        assert_eq!(titles(Some(20)), least);
        let some = titles(Some(90));
        assert!(some.len() > least.len() && some.len() < titles(None).len(), "{some:?}");
        assert!(some.contains(&"phase") && !some.contains(&"oldest wait"), "{some:?}");
    }

    #[test]
    fn every_view_shows_an_item_of_which_nothing_is_known() {
        for view in VIEWS {
            let table = view.table(&[json!({})], Timestamp::UNIX_EPOCH).to_string();
            assert!(table.contains('–'), "{}: {table}", view.name);
        }
    }
}
