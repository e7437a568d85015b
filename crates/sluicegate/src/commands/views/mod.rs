//! The operator's views: lists of the server as tables, or as the JSON that they are.
//!
//! A view is data: where the list is, what it can be filtered by, and its columns.

mod breakers;
mod fields;
mod groups;
mod inflight;
mod parked;
mod pools;
mod queues;
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
}

const POOL: Filter = Filter { name: "pool", value_name: "CODE", help: "Only those of this pool" };

/// All of them but `status`, which is made of several.
pub(super) const VIEWS: [&View; 9] = [
    &pools::VIEW,
    &queues::VIEW,
    &inflight::VIEW,
    &groups::VIEW,
    &tenants::VIEW,
    &workers::VIEW,
    &warnings::VIEW,
    &breakers::VIEW,
    &parked::VIEW,
];

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
            .value_parser(value_parser!(u32).range(1..=1_000_000))
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
            screen::line(format_args!("there are more: --limit {}", limit * 10))?;
        }
        Ok(())
    }

    fn table(&self, items: &[Value], now: Timestamp) -> Table {
        let mut table = Table::new(self.columns.iter().map(|column| (column.title, column.align)));
        for item in items {
            table.row(self.columns.iter().map(|column| (column.cell)(item, now)));
        }
        table
    }
}

const fn left(title: &'static str, cell: fn(&Value, Timestamp) -> Cell) -> Column {
    Column { title, align: Align::Left, cell }
}

const fn right(title: &'static str, cell: fn(&Value, Timestamp) -> Cell) -> Column {
    Column { title, align: Align::Right, cell }
}
