//! Messages that are put back into the file, perhaps before what was read of their lanes.
//!
//! One that the cursor of its lane has still to come to is found there. Any other is told here: it is ready; or, where
//! order is kept, the next of its key is looked up if it may be this one. While someone reads, the cursor may pass one
//! without having seen it, and a key may turn out to have a head that came after it: then it counts as passed, and what
//! is looked up is looked up again after it.

use std::sync::Arc;

use super::super::row::{Key, Returned};
use super::lane::rank;
use super::{Lanes, ReadAhead};

impl ReadAhead {
    /// Messages were put back: to their places, or to the end with the numbers from `first` to `last`.
    pub(crate) fn put_back(&mut self, first: i64, last: i64, messages: &[Returned]) {
        if self.lanes == Lanes::Unknown {
            // Whoever asks first finds them.
            return;
        }
        self.hear_of(first, last);
        for returned in messages {
            // It may have been read, and handed out, before this was said.
            if !self.out.contains_key(&returned.seq) {
                self.returned(returned);
            }
        }
    }

    fn returned(&mut self, returned: &Returned) {
        let Returned { lane, .. } = *returned;
        let key = Key { pool: returned.pool, group: Arc::clone(&returned.group) };
        let rank = rank(returned.seq, returned.high);
        let has_head = self.has_head(&key);
        let (fetching, choosing, most) = (self.fetching, self.choosing.len(), self.ahead);
        let pool = self.pool(key.pool, &returned.code);
        if !pool.keeps(&key.group) {
            let too_many = pool.lane(lane).bare.len() >= most;
            if !pool.lane(lane).finds(rank, too_many) {
                pool.make_ready(lane, rank, Arc::clone(&key.group));
            }
        } else if has_head {
            self.return_to_head(&key, returned);
        } else if fetching || !pool.lane(lane).finds(rank, choosing >= most) {
            self.choose_without_head(&key, returned.seq, lane, returned.high);
        }
        // Now that it is said what becomes of it: a lane with nothing in it is forgotten.
        self.change(key.pool, |pool| pool.change(lane, |_| ()));
    }
}
