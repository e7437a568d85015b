//! Calls for up to ten messages at once. Such a call succeeds though some of its entries fail, so
//! every entry has a fate of its own, and only those that may work are tried again.

use aws_sdk_sqs::types::{
    BatchResultErrorEntry, ChangeMessageVisibilityBatchRequestEntry, DeleteMessageBatchRequestEntry,
};
use futures_util::StreamExt;
use futures_util::stream;

use super::client::{Link, whole};
use super::trouble::Trouble;
use crate::network::pause::Pauses;

/// The most entries of one call.
pub(super) const BATCH: usize = 10;
/// How many calls are under way at once for one question.
pub(super) const AT_ONCE: usize = 8;
/// How often an entry is tried.
const ROUNDS: u32 = 3;

/// What is asked of the service for one message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'a> {
    pub(super) handle: &'a str,
    pub(super) wish: Wish,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Delete,
    /// Hide it for so many seconds from now on.
    Hide(u64),
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Done,
    /// The receipt handle is not valid any more.
    Expired,
    /// The service will never do it.
    Refused,
    /// It is not known, or not yet.
    Failed(Trouble),
}

impl Link {
    /// Asks for all of them, in as many calls as it takes. The fates are in the order of the
    /// entries.
    pub(super) async fn ask_all(&self, entries: &[Entry<'_>]) -> Vec<Fate> {
        let mut fates = vec![Fate::Failed(Trouble::Passing(String::new())); entries.len()];
        let of = |deletes: bool| {
            let wanted = |index: &usize| (entries[*index].wish == Wish::Delete) == deletes;
            (0..entries.len()).filter(wanted).collect::<Vec<usize>>()
        };
        let (deletes, hides) = (of(true), of(false));
        let mut calls = Vec::new();
        for lot in deletes.chunks(BATCH).chain(hides.chunks(BATCH)) {
            calls.push(self.ask_lot(entries, lot));
        }
        let asked: Vec<_> = stream::iter(calls).buffer_unordered(AT_ONCE).collect().await;
        for (lot, answers) in asked {
            for (index, fate) in lot.iter().zip(answers) {
                fates[*index] = fate;
            }
        }
        fates
    }

    async fn ask_lot<'a>(
        &self,
        entries: &[Entry<'_>],
        lot: &'a [usize],
    ) -> (&'a [usize], Vec<Fate>) {
        let of_lot: Vec<Entry<'_>> = lot.iter().map(|index| entries[*index]).collect();
        (lot, self.ask(&of_lot).await)
    }

    /// Asks for up to ten of one kind, and again for those that may work then.
    async fn ask(&self, entries: &[Entry<'_>]) -> Vec<Fate> {
        let mut fates: Vec<Option<Fate>> = vec![None; entries.len()];
        let mut pauses = Pauses::default();
        for round in 1..=ROUNDS {
            let open: Vec<usize> = (0..entries.len())
                .filter(|index| matches!(fates[*index], None | Some(Fate::Failed(_))))
                .collect();
            if open.is_empty() {
                break;
            }
            if round > 1 {
                tokio::time::sleep(pauses.next()).await;
            }
            match self.ask_once(entries, &open).await {
                Ok(failed) => {
                    open.iter().for_each(|index| fates[*index] = Some(Fate::Done));
                    for (index, fate) in failed {
                        if let Some(place) = fates.get_mut(index) {
                            *place = Some(fate);
                        }
                    }
                }
                Err(trouble) => {
                    // The client has tried again by itself.
                    let failed = || Some(Fate::Failed(trouble.clone()));
                    open.iter().for_each(|index| fates[*index] = failed());
                    break;
                }
            }
        }
        let unknown = || Fate::Failed(Trouble::Passing("no answer".to_owned()));
        fates.into_iter().map(|fate| fate.unwrap_or_else(unknown)).collect()
    }

    /// One call; answers what failed, by its index. All are of one kind.
    async fn ask_once(
        &self,
        entries: &[Entry<'_>],
        open: &[usize],
    ) -> Result<Vec<(usize, Fate)>, Trouble> {
        let doing = "settling";
        let failed = match open.first().map(|index| entries[*index].wish) {
            None => return Ok(Vec::new()),
            Some(Wish::Delete) => {
                let entry = |index: &usize| {
                    let entry = DeleteMessageBatchRequestEntry::builder().id(index.to_string());
                    let entry = entry.receipt_handle(entries[*index].handle).build();
                    entry.expect("it has all that it needs")
                };
                let call = self.client.delete_message_batch().queue_url(&self.queue_url);
                let call = call.set_entries(Some(open.iter().map(entry).collect()));
                call.send().await.map_err(|error| Trouble::of(doing, &error))?.failed
            }
            Some(Wish::Hide(_)) => {
                let entry = |index: &usize| {
                    let Wish::Hide(seconds) = entries[*index].wish else {
                        unreachable!("one call has entries of one kind")
                    };
                    ChangeMessageVisibilityBatchRequestEntry::builder()
                        .id(index.to_string())
                        .receipt_handle(entries[*index].handle)
                        .visibility_timeout(whole(seconds))
                        .build()
                        .expect("it has all that it needs")
                };
                let call = self.client.change_message_visibility_batch();
                let call = call.queue_url(&self.queue_url);
                let call = call.set_entries(Some(open.iter().map(entry).collect()));
                call.send().await.map_err(|error| Trouble::of(doing, &error))?.failed
            }
        };
        let by_index = |failed: &BatchResultErrorEntry| {
            failed.id().parse().ok().map(|index| (index, fate_of(failed)))
        };
        Ok(failed.iter().filter_map(by_index).collect())
    }
}

/// What the failure of one entry means.
fn fate_of(failed: &BatchResultErrorEntry) -> Fate {
    let code = failed.code().rsplit(['#', '.']).next().unwrap_or_default();
    let words = failed.message().unwrap_or_default();
    match code {
        "ReceiptHandleIsInvalid" | "MessageNotInflight" | "InvalidReceiptHandle" => Fate::Expired,
        // A FIFO queue says so in words only.
        "InvalidParameterValue" if words.contains("expired") => Fate::Expired,
        _ if failed.sender_fault() && !code.contains("Throttl") && code != "OverLimit" => {
            Fate::Refused
        }
        _ => Fate::Failed(Trouble::Passing(format!("settling: one entry failed: {code}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_fails_is_read_by_its_code() {
        let cases = [
            ("ReceiptHandleIsInvalid", "", true, Fate::Expired),
            ("AWS.SimpleQueueService.MessageNotInflight", "", true, Fate::Expired),
            (
                "InvalidParameterValue",
                "Reason: The receipt handle has expired.",
                true,
                Fate::Expired,
            ),
            (
                "InvalidParameterValue",
                "Total VisibilityTimeout is beyond the limit",
                true,
                Fate::Refused,
            ),
            ("InternalError", "", false, failed("InternalError")),
            ("RequestThrottled", "", true, failed("RequestThrottled")),
        ];
        for (code, words, sender_fault, expected) in cases {
            let entry = BatchResultErrorEntry::builder().id("0").code(code).message(words);
            let entry = entry.sender_fault(sender_fault).build().unwrap();
            assert_eq!(fate_of(&entry), expected, "{code} {words}");
        }
    }

    fn failed(code: &str) -> Fate {
        Fate::Failed(Trouble::Passing(format!("settling: one entry failed: {code}")))
    }
}
