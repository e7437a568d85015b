//! A bound on how deep a file's syntax tree can get, so that walking it cannot exhaust the stack.
//!
//! Parsing, walking and dropping a tree all recurse. A tree deepens with each bracket, and also
//! with each link of a chain (`a.b().c()`, `a + b + c`, `!!!x`, `else if`), which needs none. Both
//! are counted on the tokens, before anything recurses. The limits are far above what people
//! write and were chosen so that a debug build passes with half of a main thread's 8 MiB.

use proc_macro2::{Delimiter, Group, Punct, Spacing, Span, TokenStream, TokenTree};

/// Brackets within brackets.
pub(crate) const MAX_BRACKETS: usize = 96;
/// Links of chains, summed along the path from the file to its deepest token.
pub(crate) const MAX_LINKS: usize = 600;

/// One open bracket on the way down, with the links of the chain it stands in.
struct Level {
    rest: proc_macro2::token_stream::IntoIter,
    /// A match's arms stand in braces.
    in_brace: bool,
    outer_links: usize,
    links: usize,
    /// Links behind a literal: of a chain, or of alternatives in a pattern, which stand side by
    /// side. Tables of characters have thousands; the `=>` behind them tells.
    undecided: usize,
    before: Before,
}

/// What the token before was, where it matters.
#[derive(Clone, Copy, PartialEq)]
enum Before {
    Other,
    Hash,
    Brace,
    Bracket,
    Literal,
    Equals,
}

impl Level {
    fn open(stream: TokenStream, in_brace: bool, outer_links: usize) -> Self {
        let (rest, before) = (stream.into_iter(), Before::Other);
        Self { rest, in_brace, outer_links, links: 0, undecided: 0, before }
    }

    fn total(&self) -> usize {
        self.outer_links + self.links + self.undecided
    }
}

/// The place where the file gets too deep, if it does.
pub(crate) fn too_deep(stream: &TokenStream) -> Option<Span> {
    let mut open = vec![Level::open(stream.clone(), false, 0)];
    let mut last = Span::call_site();
    while let Some(top) = open.last_mut() {
        let Some(token) = top.rest.next() else {
            if top.total() > MAX_LINKS {
                return Some(last);
            }
            open.pop();
            continue;
        };
        last = token.span();
        let deepest = top.count(&token);
        if deepest > MAX_LINKS && top.undecided == 0 || open.len() > MAX_BRACKETS {
            return Some(last);
        }
        if let TokenTree::Group(group) = &token {
            open.push(Level::open(group.stream(), is_brace(group), deepest));
        }
    }
    None
}

impl Level {
    /// Counts one token in, and says how deep the tree can be there.
    fn count(&mut self, token: &TokenTree) -> usize {
        let before = std::mem::replace(&mut self.before, Before::Other);
        // A brace ends a statement unless an operator or `else` goes on with it.
        if before == Before::Brace && !continues(token) {
            self.links = 0;
        }
        match token {
            TokenTree::Punct(punct) => return self.count_punct(punct, before),
            TokenTree::Literal(_) => self.before = Before::Literal,
            TokenTree::Ident(ident) if ident == "if" => self.undecided = 0,
            TokenTree::Ident(ident) => {
                self.decide();
                self.links += if ident == "else" { 1 } else { 2 * usize::from(is_prefix(ident)) };
            }
            TokenTree::Group(group) => {
                self.decide();
                // `f()()()`, `a[0][0]`: a bracket behind a bracket is a link too.
                self.links += usize::from(before == Before::Bracket);
                self.before = match (is_brace(group), before) {
                    (true, _) => Before::Brace,
                    (false, Before::Hash) => Before::Other,
                    (false, _) => Before::Bracket,
                };
            }
        }
        self.total()
    }

    fn count_punct(&mut self, punct: &Punct, before: Before) -> usize {
        let char = punct.as_char();
        match char {
            ',' | ';' => {
                self.decide();
                let deepest = self.total();
                self.links = 0;
                return deepest;
            }
            '>' if before == Before::Equals => {
                self.undecided = 0;
                self.links = 0;
            }
            // Attributes: a documentation comment is one per line, side by side.
            '#' => self.before = Before::Hash,
            '!' if before == Before::Hash => self.before = Before::Hash,
            // Segments of a path stand side by side too.
            ':' => {}
            _ if self.in_brace && (before == Before::Literal || self.undecided > 0) => {
                self.undecided += 1;
            }
            // `==` is one link; closures, assignments and `return` cost the parser most.
            '=' if before == Before::Equals => {}
            '=' if punct.spacing() == Spacing::Alone => self.links += 2,
            '|' => self.links += 2,
            _ => self.links += 1,
        }
        if char == '=' {
            self.before = Before::Equals;
        }
        self.total()
    }

    /// What stands behind the literal was a chain after all.
    fn decide(&mut self) {
        self.links += std::mem::take(&mut self.undecided);
    }
}

fn is_brace(group: &Group) -> bool {
    group.delimiter() == Delimiter::Brace
}

fn is_prefix(ident: &proc_macro2::Ident) -> bool {
    const WORDS: &[&str] =
        &["as", "async", "break", "const", "dyn", "move", "mut", "return", "unsafe", "yield"];
    WORDS.iter().any(|word| ident == word)
}

fn continues(token: &TokenTree) -> bool {
    match token {
        TokenTree::Punct(punct) => punct.as_char() != '#',
        TokenTree::Ident(ident) => ident == "else" || ident == "as",
        TokenTree::Group(group) => !is_brace(group),
        TokenTree::Literal(_) => false,
    }
}
