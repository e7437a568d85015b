//! Fail-fast permits: an endpoint that would rather say "too many" at once than let callers queue,
//! with a limit that an operator changes while it is in use.
//!
//! `cargo run -p sluicegate-tasks --example fail_fast_permits`

use std::error::Error;
use std::sync::Arc;

use sluicegate_tasks::{AtLimit, OwnedPermit, Permits};

/// Something expensive of which only a few may run at once.
struct Projections {
    permits: Arc<Permits>,
}

/// A running one. Its permit is a field, so it comes back when this is dropped: at the end, on an
/// early return, on a panic.
struct Projection {
    _permit: OwnedPermit,
    rows: Vec<u32>,
}

impl Projections {
    fn start(&self, rows: u32) -> Result<Projection, AtLimit> {
        // The permit first: what fails after this line gives it back by itself.
        let permit = self.permits.try_acquire_owned()?;
        Ok(Projection { _permit: permit, rows: (0..rows).collect() })
    }
}

impl Projection {
    fn sum(self) -> Result<u32, &'static str> {
        if self.rows.is_empty() {
            return Err("nothing to project");
        }
        Ok(self.rows.iter().sum())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let projections = Projections { permits: Arc::new(Permits::new(2)?) };

    let first = projections.start(10)?;
    let second = projections.start(0)?;
    match projections.start(5) {
        Err(at_limit) => println!("the third is refused: {at_limit}"),
        Ok(_) => return Err("the third got in".into()),
    }

    println!("the second fails early: {}", second.sum().expect_err("it has no rows"));
    println!("and its permit is back: {} in use", projections.permits.in_use());

    projections.permits.resize(1)?;
    println!("limit lowered to 1: the first goes on, nobody new enters until it ends");
    println!("refused: {}", projections.start(5).is_err());
    println!("the first says {}", first.sum()?);
    println!("the next says {}", projections.start(5)?.sum()?);
    Ok(())
}
