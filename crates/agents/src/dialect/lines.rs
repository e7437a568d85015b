//! Splitting what an agent writes into lines, within a bound.

/// The output of one turn, as lines.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// What was written and is not taken yet, beginning at `at`.
    pending: Vec<u8>,
    at: usize,
    /// Up to where there is no end of a line.
    searched: usize,
    total: usize,
}

/// More than may be written in one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OverLimit;

impl Lines {
    pub(super) fn push(&mut self, bytes: &[u8], limit: usize) -> Result<(), OverLimit> {
        self.total = self.total.saturating_add(bytes.len());
        if self.total > limit {
            return Err(OverLimit);
        }
        self.pending.drain(..self.at);
        self.searched -= self.at;
        self.at = 0;
        self.pending.extend_from_slice(bytes);
        Ok(())
    }

    /// The next whole line, without its end.
    pub(super) fn next(&mut self) -> Option<String> {
        let found = self.pending[self.searched..].iter().position(|byte| *byte == b'\n');
        let Some(found) = found else {
            self.searched = self.pending.len();
            return None;
        };
        let end = self.searched + found;
        let line = String::from_utf8_lossy(&self.pending[self.at..end]).trim().to_owned();
        (self.at, self.searched) = (end + 1, end + 1);
        Some(line)
    }

    /// What was written after the last end of a line, which stays.
    pub(super) fn unfinished(&self) -> String {
        String::from_utf8_lossy(&self.pending[self.at..]).trim().to_owned()
    }

    /// Whether the last of it that can be seen is this.
    pub(super) fn rest_ends_with(&self, end: u8) -> bool {
        self.pending[self.at..].trim_ascii_end().last() == Some(&end)
    }

    /// What was written after the last end of a line, taken.
    pub(super) fn rest(&mut self) -> String {
        let rest = self.unfinished();
        (self.at, self.searched) = (self.pending.len(), self.pending.len());
        rest
    }

    /// The next turn begins: what is not taken yet counts towards it.
    pub(super) const fn begin(&mut self) {
        self.total = self.pending.len() - self.at;
    }

    pub(super) fn has_rest(&self) -> bool {
        self.pending[self.at..].iter().any(|byte| !byte.is_ascii_whitespace())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// However the bytes come, the lines are the same.
        #[test]
        fn pieces_do_not_matter(text in "[ab\n]{0,40}", cuts in prop::collection::vec(0usize..8, 0..40)) {
            let mut lines = Lines::default();
            let (mut said, mut left) = (Vec::new(), text.as_bytes());
            for cut in cuts {
                let (piece, rest) = left.split_at(cut.min(left.len()));
                lines.push(piece, 100).unwrap();
                left = rest;
                while let Some(line) = lines.next() {
                    said.push(line);
                }
            }
            lines.push(left, 100).unwrap();
            while let Some(line) = lines.next() {
                said.push(line);
            }
            said.push(lines.rest());
            let expected: Vec<&str> = text.split('\n').collect();
            prop_assert_eq!(said, expected);
        }
    }

    #[test]
    fn a_turn_has_a_limit() {
        let mut lines = Lines::default();
        assert_eq!(lines.push(b"12345", 5), Ok(()));
        assert_eq!(lines.push(b"6", 5), Err(OverLimit));
    }
}
