//! The text of a settings file: where an offset stands, and how its line is shown to people.
//!
//! A line is shown only after what must stay secret in it has been masked.

use std::ops::Range;

/// The most characters of one line that are shown; the rest is cut off around the mark.
const MOST_SHOWN: usize = 120;

/// Words that make a line suspect when the document could not be read as a whole.
const SUSPECT: &[&str] = &["token", "secret", "password", "webhook", "key", "env"];

/// One text, with its lines found once.
#[derive(Debug)]
pub(super) struct Source<'a> {
    text: &'a str,
    /// The offset at which each line begins.
    lines: Vec<usize>,
}

/// One line, ready to be shown, with what is marked in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Excerpt {
    pub(super) text: String,
    pub(super) marks: String,
}

impl<'a> Source<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let after_newlines = text.match_indices('\n').map(|(at, _)| at + 1);
        Self { text, lines: std::iter::once(0).chain(after_newlines).collect() }
    }

    pub(super) fn text(&self) -> &'a str {
        self.text
    }

    /// The text of a span; nothing when it is not one of this text.
    pub(super) fn slice(&self, span: &Range<usize>) -> &'a str {
        self.text.get(span.clone()).unwrap_or_default()
    }

    /// Line and column, both counted from 1, the column in characters.
    pub(super) fn place(&self, at: usize) -> (usize, usize) {
        let line = self.line_of(at);
        let before = self.slice(&(self.lines[line]..self.floor(at)));
        (line + 1, before.chars().filter(|c| *c != '\u{feff}').count() + 1)
    }

    /// The line in which `span` begins, with that part of it marked.
    pub(super) fn excerpt(&self, span: &Range<usize>, masks: &[Range<usize>]) -> Excerpt {
        let line = self.around(span.start);
        let mut drawn = Drawn::default();
        let mut at = line.start;
        while let Some(c) = self.slice(&(at..line.end)).chars().next() {
            if let Some(end) = masked_until(masks, at) {
                // A mask has the same length whatever it hides.
                let end = end.clamp(at + c.len_utf8(), line.end);
                drawn.push("***", span.start < end && at < span.end.max(span.start + 1));
                at = end;
                continue;
            }
            let shown = if c.is_control() && c != '\t' { '\u{fffd}' } else { c };
            if c != '\u{feff}' {
                drawn.push(shown.encode_utf8(&mut [0; 4]), span.contains(&at) || at == span.start);
            }
            at += c.len_utf8();
        }
        drawn.finish()
    }

    /// What to hide in the line at `at` when nobody knows what it means: everything after the first
    /// `=`, if a word in the line suggests a secret.
    pub(super) fn suspicion(&self, at: usize) -> Option<Range<usize>> {
        let span = self.line_span(at);
        let line = self.slice(&span).to_lowercase();
        if !line.contains('@') && SUSPECT.iter().all(|word| !line.contains(word)) {
            return None;
        }
        let after = self.slice(&span).split_once('=').map_or(self.slice(&span), |(_, after)| after);
        Some(span.end - after.trim_start().len()..span.end)
    }

    fn line_of(&self, at: usize) -> usize {
        self.lines.partition_point(|start| *start <= at).saturating_sub(1)
    }

    /// The line around an offset, without its end.
    fn line_span(&self, at: usize) -> Range<usize> {
        let line = self.line_of(at);
        let start = self.lines[line];
        let end = self.lines.get(line + 1).map_or(self.text.len(), |next| next - 1);
        let text = self.slice(&(start..end));
        start..start + text.strip_suffix('\r').unwrap_or(text).len()
    }

    /// As much of a line as can be shown: a document may be one line.
    fn around(&self, at: usize) -> Range<usize> {
        const REACH: usize = 8 * MOST_SHOWN;
        let line = self.line_span(at);
        let from = self.floor(at.saturating_sub(REACH)).max(line.start);
        from..self.floor(at.saturating_add(REACH)).min(line.end)
    }

    fn floor(&self, at: usize) -> usize {
        self.text.floor_char_boundary(at)
    }
}

/// Where the mask over `at` ends, if there is one. `masks` are in order and do not overlap.
fn masked_until(masks: &[Range<usize>], at: usize) -> Option<usize> {
    let after = masks.partition_point(|mask| mask.start <= at);
    masks[..after].last().filter(|mask| mask.contains(&at)).map(|mask| mask.end)
}

/// A line and its marks while they are put together, character by character.
#[derive(Default)]
struct Drawn {
    text: Vec<char>,
    marks: Vec<char>,
}

impl Drawn {
    fn push(&mut self, text: &str, marked: bool) {
        for c in text.chars() {
            self.text.push(c);
            // Tabs stay, so that the marks stand below what they mark.
            self.marks.push(match (marked, c) {
                (true, _) => '^',
                (false, '\t') => '\t',
                (false, _) => ' ',
            });
        }
    }

    fn finish(mut self) -> Excerpt {
        let first = match self.marks.iter().position(|mark| *mark == '^') {
            Some(first) => first,
            None => {
                // What is wrong stands at the end of the line: nothing is there to be marked.
                self.marks.push('^');
                self.marks.len() - 1
            }
        };
        let from =
            if self.text.len() > MOST_SHOWN { first.saturating_sub(MOST_SHOWN / 2) } else { 0 };
        let cut = |chars: &[char]| -> String { chars.iter().skip(from).take(MOST_SHOWN).collect() };
        let mut text = cut(&self.text);
        if self.text.len() > from + MOST_SHOWN {
            text.push('…');
        }
        Excerpt { text, marks: cut(&self.marks).trim_end().to_owned() }
    }
}
