//! A bound on how deep a file's syntax tree can get, so that walking it cannot exhaust the stack.
//!
//! Parsing, walking and dropping a tree all recurse. A tree deepens with each bracket, and also
//! with each link of a chain (`a.b().c()`, `a + b + c`, `!!!x`, `else if`), which needs none. Both
//! are counted on the tokens, before anything recurses. The limits are far above what people
//! write and were chosen so that a debug build passes within the 8 MiB of a main thread.

use proc_macro2::{Delimiter, Group, Span, TokenStream, TokenTree};

/// Brackets within brackets.
pub(crate) const MAX_BRACKETS: usize = 96;
/// Links of chains, summed along the path from the file to its deepest token.
pub(crate) const MAX_LINKS: usize = 600;

/// One open bracket on the way down, with the links of the chain it stands in.
struct Level {
    rest: proc_macro2::token_stream::IntoIter,
    links: usize,
    outer_links: usize,
    after_brace: bool,
    after_hash: bool,
}

/// The place where the file gets too deep, if it does.
pub(crate) fn too_deep(stream: &TokenStream) -> Option<Span> {
    let level = |stream: TokenStream, outer_links| Level {
        rest: stream.into_iter(),
        links: 0,
        outer_links,
        after_brace: false,
        after_hash: false,
    };
    let mut open = vec![level(stream.clone(), 0)];
    while let Some(top) = open.last_mut() {
        let Some(token) = top.rest.next() else {
            open.pop();
            continue;
        };
        top.count(&token);
        let links = top.outer_links + top.links;
        if links > MAX_LINKS || open.len() > MAX_BRACKETS {
            return Some(token.span());
        }
        if let TokenTree::Group(group) = &token {
            open.push(level(group.stream(), links));
        }
    }
    None
}

impl Level {
    fn count(&mut self, token: &TokenTree) {
        // A brace ends a statement unless an operator or `else` goes on with it.
        if std::mem::take(&mut self.after_brace) && !continues(token) {
            self.links = 0;
        }
        match token {
            TokenTree::Punct(punct) => match punct.as_char() {
                ',' | ';' => self.links = 0,
                // Attributes: a documentation comment is one per line, side by side.
                '#' => self.after_hash = true,
                '!' if self.after_hash => {}
                _ => self.links += 1,
            },
            TokenTree::Group(group) => {
                self.after_brace = is_brace(group);
                // `f()()()`, `a[0][0]`: a bracket may be a link too.
                self.links += usize::from(!self.after_brace && !self.after_hash);
                self.after_hash = false;
            }
            TokenTree::Ident(ident) => self.links += usize::from(is_prefix(ident)),
            TokenTree::Literal(_) => {}
        }
    }
}

fn is_brace(group: &Group) -> bool {
    group.delimiter() == Delimiter::Brace
}

fn is_prefix(ident: &proc_macro2::Ident) -> bool {
    [
        "else", "return", "break", "move", "async", "unsafe", "yield", "dyn", "mut", "const", "as",
    ]
    .iter()
    .any(|word| ident == word)
}

fn continues(token: &TokenTree) -> bool {
    match token {
        TokenTree::Punct(punct) => punct.as_char() != '#',
        TokenTree::Ident(ident) => ident == "else" || ident == "as",
        TokenTree::Group(group) => !is_brace(group),
        TokenTree::Literal(_) => false,
    }
}
