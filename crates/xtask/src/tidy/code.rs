//! Rust source split into what is code and what is comment.
//!
//! Both views keep the lines of the file; the contents of strings appear in neither, so a check
//! that looks for a word may itself spell that word in a string.

/// The two views, line by line.
#[derive(Debug)]
pub(super) struct Code {
    pub(super) code: Vec<String>,
    pub(super) comments: Vec<String>,
}

impl Code {
    /// Splits one file.
    pub(super) fn scan(text: &str) -> Code {
        let mut scanner = Scanner::new(text);
        while scanner.step() {}
        let lines = |view: &str| view.lines().map(str::to_owned).collect();
        Code { code: lines(&scanner.code), comments: lines(&scanner.comments) }
    }

    /// The line, counted from 1, of the first attribute that keeps code for tests. One that stands
    /// before `mod name;` does not: that code is in another file.
    pub(super) fn first_test_line(&self) -> Option<usize> {
        let opens = |line: &str| {
            let attribute = line.trim_start().starts_with("#[cfg(");
            attribute && words(line).any(|word| word == "test") && !line.contains("not(test)")
        };
        let elsewhere = |after: &[String]| {
            let mut lines = after.iter().map(|line| line.trim());
            let item = lines.find(|line| !line.is_empty() && !line.starts_with("#["));
            item.is_some_and(|item| words(item).next() == Some("mod") && item.ends_with(';'))
        };
        let found = |at: &usize| opens(&self.code[*at]) && !elsewhere(&self.code[at + 1..]);
        (0..self.code.len()).find(found).map(|index| index + 1)
    }
}

/// The identifiers and keywords of one line of code.
pub(super) fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !is_word(c)).filter(|word| !word.is_empty())
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum View {
    Code,
    Comment,
    Neither,
}

struct Scanner {
    chars: Vec<char>,
    at: usize,
    code: String,
    comments: String,
}

impl Scanner {
    fn new(text: &str) -> Scanner {
        Scanner {
            chars: text.chars().collect(),
            at: 0,
            code: String::with_capacity(text.len()),
            comments: String::new(),
        }
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    /// Moves past `count` characters, showing them in one view and blanks in the other.
    fn take(&mut self, count: usize, view: View) {
        for _ in 0..count {
            let Some(c) = self.peek(0) else { return };
            self.at += 1;
            if c == '\n' {
                self.code.push('\n');
                self.comments.push('\n');
                continue;
            }
            self.code.push(if view == View::Code { c } else { ' ' });
            self.comments.push(if view == View::Comment { c } else { ' ' });
        }
    }

    /// Takes one token; `false` at the end.
    fn step(&mut self) -> bool {
        let Some(c) = self.peek(0) else { return false };
        match (c, self.peek(1)) {
            ('/', Some('/')) => {
                while self.peek(0).is_some_and(|c| c != '\n') {
                    self.take(1, View::Comment);
                }
            }
            ('/', Some('*')) => self.block_comment(),
            ('"', _) => self.string(),
            ('\'', Some('\\')) => self.character(),
            ('\'', Some(_)) if self.peek(2) == Some('\'') => self.take(3, View::Neither),
            _ if is_word(c) => self.word(),
            _ => self.take(1, View::Code),
        }
        true
    }

    fn block_comment(&mut self) {
        let mut depth = 0;
        while let Some(c) = self.peek(0) {
            match (c, self.peek(1)) {
                ('/', Some('*')) => depth += 1,
                ('*', Some('/')) => depth -= 1,
                _ => {
                    self.take(1, View::Comment);
                    continue;
                }
            }
            self.take(2, View::Comment);
            if depth == 0 {
                return;
            }
        }
    }

    fn string(&mut self) {
        self.take(1, View::Neither);
        while let Some(c) = self.peek(0) {
            self.take(if c == '\\' { 2 } else { 1 }, View::Neither);
            if c == '"' {
                return;
            }
        }
    }

    fn character(&mut self) {
        // The quote, the backslash, and whatever it escapes, which may be a quote.
        self.take(3, View::Neither);
        while let Some(c) = self.peek(0) {
            self.take(1, View::Neither);
            if c == '\'' {
                return;
            }
        }
    }

    /// A word, and the raw string that it may open.
    fn word(&mut self) {
        let mut word = String::new();
        while let Some(c) = self.peek(0).filter(|c| is_word(*c)) {
            word.push(c);
            self.take(1, View::Code);
        }
        if !["r", "br", "cr"].contains(&word.as_str()) {
            return;
        }
        let mut hashes = 0;
        while self.peek(hashes) == Some('#') {
            hashes += 1;
        }
        if self.peek(hashes) != Some('"') {
            return;
        }
        self.take(hashes + 1, View::Neither);
        while let Some(c) = self.peek(0) {
            let closes = c == '"' && (1..=hashes).all(|ahead| self.peek(ahead) == Some('#'));
            self.take(if closes { hashes + 1 } else { 1 }, View::Neither);
            if closes {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Code, words};

    fn views(text: &str) -> (String, String) {
        let scanned = Code::scan(text);
        // Blanks say nothing here, so runs of them count as one.
        let squeeze = |lines: &[String]| {
            let squeezed = |line: &String| line.split_whitespace().collect::<Vec<_>>().join(" ");
            lines.iter().map(squeezed).collect::<Vec<_>>().join("|")
        };
        (squeeze(&scanned.code), squeeze(&scanned.comments))
    }

    #[test]
    fn code_comments_and_strings_are_told_apart() {
        let cases = [
            ("let a = 1; // why", "let a = 1;", "// why"),
            ("a /* b /* c */ d */ e", "a e", "/* b /* c */ d */"),
            ("f(\"// no\")", "f( )", ""),
            (r#"f("\"", g)"#, "f( , g)", ""),
            (r###"f(r#"a "quoted" // b"#, g)"###, "f(r , g)", ""),
            (r"f(b'\'', g) // c", "f(b , g)", "// c"),
            (r"f('\u{7f}', '\\')", "f( , )", ""),
            ("fn f<'a>(x: &'a str) {}", "fn f<'a>(x: &'a str) {}", ""),
            ("a '\"' b", "a b", ""),
            ("\"two\nlines\" end", "|end", "|"),
            ("r#type", "r#type", ""),
        ];
        for (text, code, comments) in cases {
            assert_eq!(views(text), (code.to_owned(), comments.to_owned()), "{text}");
        }
    }

    #[test]
    fn the_first_test_attribute_is_found_in_code_only() {
        let text = "// #[cfg(test)]\nlet s = \"\n#[cfg(test)]\";\n    #[cfg(test)]\nmod tests {}\n";
        assert_eq!(Code::scan(text).first_test_line(), Some(4));
        let cases = [
            ("fn main() {}", None),
            ("\n#[cfg(all(test, not(model)))]", Some(2)),
            ("#[cfg(not(test))]", None),
            ("#[cfg(test)]\nmod tests;\nfn main() {}", None),
            ("#[cfg(test)]\nmod models;\n\n#[cfg(test)]\nmod tests {}", Some(4)),
            ("#[cfg(feature = \"test\")]", None),
        ];
        for (text, line) in cases {
            assert_eq!(Code::scan(text).first_test_line(), line, "{text}");
        }
    }

    #[test]
    fn words_are_identifiers() {
        let found: Vec<&str> = words("use std::time::{Duration, Instant as When};").collect();
        assert_eq!(found, ["use", "std", "time", "Duration", "Instant", "as", "When"]);
    }
}
