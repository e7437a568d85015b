//! Settling and extending deliveries: one statement for a batch.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use sluicegate_dispatch::{Receipt, Rest, Settle, Settled, Settlement, SourceError};
use tokio_postgres::Row;

use super::link::Values;
use super::shared::{Shared, micros};

/// How a delivery ends, as the database knows it.
#[derive(Clone, Copy)]
pub(crate) enum End {
    Gone,
    Again {
        after: i64,
        attempts: i32,
        reason: &'static str,
    },
    /// As if it had never been out.
    Untouched,
    Buried,
}

impl From<Settlement> for End {
    fn from(settlement: Settlement) -> Self {
        match settlement {
            Settlement::Ack => Self::Gone,
            Settlement::Park => Self::Buried,
            Settlement::Retry { after, attempts, reason } => Self::Again {
                after: micros(after),
                attempts: tries(attempts),
                reason: reason.label(),
            },
        }
    }
}

/// The columns of a batch.
#[derive(Default)]
struct Columns {
    seqs: Vec<i64>,
    marks: Vec<i64>,
    endings: Vec<i16>,
    afters: Vec<i64>,
    tries: Vec<Option<i32>>,
    reasons: Vec<Option<&'static str>>,
}

impl Columns {
    fn push(&mut self, receipt: &Receipt, end: End) {
        self.seqs.push(receipt.tag.cast_signed());
        self.marks.push(receipt.generation.cast_signed());
        let (settlement, after, tries, reason) = match end {
            End::Gone => (0, 0, None, None),
            End::Again { after, attempts, reason } => (1, after, Some(attempts), Some(reason)),
            End::Untouched => (1, 0, None, None),
            End::Buried => (2, 0, None, None),
        };
        self.endings.push(settlement);
        self.afters.push(after);
        self.tries.push(tries);
        self.reasons.push(reason);
    }
}

/// Settles deliveries; the answers are in the order of the questions.
pub(crate) async fn settle(
    shared: &Shared,
    settle: impl IntoIterator<Item = (Receipt, End)>,
) -> Result<Vec<Settled>, SourceError> {
    let asked: Vec<(Receipt, End)> = settle.into_iter().collect();
    // All settle in the same order, so that none waits for another that waits for it. Of one message the
    // latest receipt may be valid, and of one receipt the first question counts.
    let mut firsts: Vec<usize> = (0..asked.len()).collect();
    firsts.sort_by_key(|&place| (asked[place].0.tag, Reverse(asked[place].0.generation), place));
    firsts.dedup_by_key(|&mut place| asked[place].0.tag);
    let mut columns = Columns::default();
    for &place in &firsts {
        columns.push(&asked[place].0, asked[place].1);
    }
    if firsts.is_empty() {
        return Ok(Vec::new());
    }
    let Columns { seqs, marks, endings, afters, tries, reasons } = columns;
    let rows = shared
        .link
        .rows(&shared.sql.settle, &[&seqs, &marks, &endings, &afters, &tries, &reasons])
        .await?;
    let done: HashMap<(i64, i64), bool> =
        rows.iter().map(|row| ((row.get(0), row.get(1)), row.get(2))).collect();
    let at_once = |end: &End| match end {
        End::Again { after, .. } => *after == 0,
        End::Untouched => true,
        End::Gone | End::Buried => false,
    };
    let mut settled = vec![Settled::Stale; asked.len()];
    let (mut may_come, mut gone) = (false, 0);
    for place in firsts {
        let (receipt, end) = &asked[place];
        if let Some(freed) = done.get(&key(receipt)) {
            settled[place] = Settled::Done;
            may_come |= *freed || at_once(end);
            gone += usize::from(matches!(end, End::Gone | End::Buried));
        }
    }
    if may_come {
        shared.wake.notify_one();
    }
    shared.has_aged(gone);
    Ok(settled)
}

/// Hands back what nobody has seen.
pub(crate) async fn hand_back(
    shared: &Shared,
    receipts: Vec<Receipt>,
) -> Result<Vec<Settled>, SourceError> {
    settle(shared, receipts.into_iter().map(|receipt| (receipt, End::Untouched))).await
}

/// Begins windows anew; the answers are in the order of the receipts.
pub(crate) async fn extend(
    shared: &Shared,
    receipts: Vec<Receipt>,
    span: i64,
) -> Result<Vec<Settled>, SourceError> {
    if receipts.is_empty() {
        return Ok(Vec::new());
    }
    let mut sorted: Vec<(i64, i64)> = receipts.iter().map(key).collect();
    sorted.sort_unstable_by_key(|&(seq, mark)| (seq, Reverse(mark)));
    sorted.dedup_by_key(|&mut (seq, _)| seq);
    let (seqs, marks): (Vec<i64>, Vec<i64>) = sorted.into_iter().unzip();
    let rows = shared.link.rows(&shared.sql.extend, &[&seqs, &marks, &span]).await?;
    Ok(answers(receipts.iter(), &rows))
}

/// Notes what rests; the answers are in the order of the questions.
pub(crate) async fn rest(
    shared: &Shared,
    rests: Vec<Rest>,
    span: i64,
) -> Result<Vec<Settled>, SourceError> {
    let mut sorted: Vec<&Rest> = rests.iter().collect();
    sorted.sort_by_key(|rest| (rest.receipt.tag, Reverse(rest.receipt.generation)));
    sorted.dedup_by_key(|rest| rest.receipt.tag);
    let (seqs, marks): (Vec<i64>, Vec<i64>) = sorted.iter().map(|rest| key(&rest.receipt)).unzip();
    let afters: Vec<i64> = sorted.iter().map(|rest| micros(rest.after)).collect();
    let tries: Vec<i32> = sorted.iter().map(|rest| tries(rest.attempts)).collect();
    let reasons: Vec<&str> = sorted.iter().map(|rest| rest.reason.label()).collect();
    let values: Values<'_> = &[&seqs, &marks, &afters, &tries, &reasons, &span];
    let rows = shared.link.rows(&shared.sql.rest, values).await?;
    Ok(answers(rests.iter().map(|rest| &rest.receipt), &rows))
}

/// Which receipts were valid.
fn answers<'a>(receipts: impl Iterator<Item = &'a Receipt>, rows: &[Row]) -> Vec<Settled> {
    let valid: HashSet<(i64, i64)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let answer = |receipt: &Receipt| {
        if valid.contains(&key(receipt)) { Settled::Done } else { Settled::Stale }
    };
    receipts.map(answer).collect()
}

/// A number of attempts as the database keeps it.
fn tries(attempts: u32) -> i32 {
    i32::try_from(attempts).unwrap_or(i32::MAX)
}

/// A message's number, and the mark of its claim.
const fn key(receipt: &Receipt) -> (i64, i64) {
    (receipt.tag.cast_signed(), receipt.generation.cast_signed())
}

/// What is settled with [`Settlement`]s.
pub(crate) fn of(settle: Settle) -> (Receipt, End) {
    (settle.receipt, settle.settlement.into())
}
