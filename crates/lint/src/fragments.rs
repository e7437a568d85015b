//! The code inside macro calls and `macro_rules!` bodies.
//!
//! A macro's input may be anything, so it is read in the ways that code is usually written in one:
//! statements, a comma list of expressions, items. What is none of these is cut at `,` `;` `=>`
//! and read piece by piece; in a piece that still cannot be read, every call chain is read by
//! itself, and every bracket is opened. Nothing is skipped but what a test attribute stands on.

use proc_macro2::{Delimiter, Group, Ident, Punct, Spacing, TokenStream, TokenTree};
use syn::parse::{ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Block, Expr, Item, Stmt, Token};

use crate::names::types::plain;
use crate::testcode::is_test_attribute;

/// A piece of code found in a macro.
pub(crate) enum Fragment {
    /// Statements of one block, in order.
    Statements(Vec<Stmt>),
    /// An expression by itself.
    Expression(Box<Expr>),
}

/// The items of a macro that wraps items, such as `cfg_rt! { … }`.
pub(crate) fn items(tokens: TokenStream) -> Option<Vec<Item>> {
    let parser = |input: ParseStream<'_>| {
        let mut items = Vec::new();
        while !input.is_empty() {
            items.push(input.parse()?);
        }
        Ok(items)
    };
    parser.parse2(tokens).ok()
}

/// The code in a macro's input.
pub(crate) fn of_macro(tokens: TokenStream) -> Vec<Fragment> {
    let mut found = Vec::new();
    read(tokens, &mut found);
    found
}

/// The code in tokens that the parser knows as a whole but not in its parts. They are cut here:
/// to parse them again would give the same.
pub(crate) fn of_verbatim(tokens: TokenStream) -> Vec<Fragment> {
    let mut found = Vec::new();
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    read_chains(&tokens, &mut found);
    found
}

/// The code on the right-hand sides of a `macro_rules!` definition.
pub(crate) fn of_rules(tokens: TokenStream) -> Vec<Fragment> {
    let mut found = Vec::new();
    let mut after_arrow = false;
    for token in tokens {
        match token {
            TokenTree::Group(body) if after_arrow => {
                read(without_metavariables(body.stream()), &mut found);
                after_arrow = false;
            }
            TokenTree::Punct(punct) if punct.as_char() == '>' => after_arrow = true,
            _ => {}
        }
    }
    found
}

fn read(tokens: TokenStream, found: &mut Vec<Fragment>) {
    if tokens.is_empty() {
        return;
    }
    let tokens = without_static_ref(tokens);
    if let Ok(list) = Punctuated::<Expr, Token![,]>::parse_terminated.parse2(tokens.clone()) {
        return found.extend(list.into_iter().map(|one| Fragment::Expression(Box::new(one))));
    }
    if let Ok(statements) = Block::parse_within.parse2(tokens.clone()) {
        return found.push(Fragment::Statements(statements));
    }
    let mut tokens: Vec<TokenTree> = tokens.into_iter().collect();
    // `thread_local!(static X: T = …)`: the last item may lack its end.
    if tokens.iter().any(|token| matches!(token, TokenTree::Ident(word) if word == "static"))
        && tokens.last().is_some_and(|last| !is_punct(last, ';'))
    {
        tokens.push(TokenTree::Punct(Punct::new(';', Spacing::Alone)));
    }
    for piece in pieces(&tokens) {
        read_piece(piece, found);
    }
}

/// `static ref X: T = …`, as `lazy_static!` has it, is a static like any other.
fn without_static_ref(tokens: TokenStream) -> TokenStream {
    let is = |token: &TokenTree, word: &str| matches!(token, TokenTree::Ident(i) if i == word);
    let list: Vec<TokenTree> = tokens.clone().into_iter().collect();
    let refs = |pair: &[TokenTree]| is(&pair[0], "static") && is(&pair[1], "ref");
    if !list.windows(2).any(refs) {
        return tokens;
    }
    let kept = |at: &usize| *at == 0 || !refs(&list[at - 1..=*at]);
    (0..list.len()).filter(kept).map(|at| list[at].clone()).collect()
}

/// Cuts at `,`, `;` and `=>`.
fn pieces(tokens: &[TokenTree]) -> Vec<&[TokenTree]> {
    let mut pieces = Vec::new();
    let mut start = 0;
    for at in 0..tokens.len() {
        let TokenTree::Punct(punct) = &tokens[at] else {
            continue;
        };
        let arrow = punct.as_char() == '>'
            && at > 0
            && matches!(&tokens[at - 1], TokenTree::Punct(p) if joint(p, '='));
        if arrow {
            pieces.push(&tokens[start..at - 1]);
            start = at + 1;
        } else if matches!(punct.as_char(), ',' | ';') {
            // The `;` stays: with it a statement is a statement.
            let end = if punct.as_char() == ';' { at + 1 } else { at };
            pieces.push(&tokens[start..end]);
            start = at + 1;
        }
    }
    pieces.push(&tokens[start..]);
    pieces.retain(|piece| !piece.is_empty());
    pieces
}

fn joint(punct: &Punct, char: char) -> bool {
    punct.as_char() == char && punct.spacing() == Spacing::Joint
}

fn read_piece(piece: &[TokenTree], found: &mut Vec<Fragment>) {
    let stream = || piece.iter().cloned().collect::<TokenStream>();
    if let Ok(statements) = Block::parse_within.parse2(stream()) {
        found.push(Fragment::Statements(statements));
        return;
    }
    // `pattern = future`, as in `select!`: the pattern need not be an expression.
    let equals = piece.iter().position(
        |token| matches!(token, TokenTree::Punct(p) if p.as_char() == '=' && p.spacing() == Spacing::Alone),
    );
    if let Some(at) = equals {
        let value: TokenStream = piece[at + 1..].iter().cloned().collect();
        if let Ok(expression) = syn::parse2::<Expr>(value) {
            found.push(Fragment::Expression(Box::new(expression)));
            return;
        }
    }
    read_chains(piece, found);
}

/// Call chains such as `tokio::spawn(x)` or `handle.spawn(x)` between tokens of unknown meaning.
fn read_chains(tokens: &[TokenTree], found: &mut Vec<Fragment>) {
    let mut at = 0;
    while at < tokens.len() {
        if let Some(length) = test_code(&tokens[at..]) {
            at += length;
            continue;
        }
        if let TokenTree::Ident(word) = &tokens[at]
            && word == "use"
        {
            at += tokens[at..].iter().take_while(|token| !is_punct(token, ';')).count();
            continue;
        }
        if let Some((expression, length)) = read_chain(&tokens[at..]) {
            found.push(Fragment::Expression(Box::new(expression)));
            at += length;
            continue;
        }
        if let TokenTree::Group(group) = &tokens[at] {
            read(group.stream(), found);
        }
        at += 1;
    }
}

/// The chain at the beginning: with its brackets if they can be read, else the path before them.
fn read_chain(tokens: &[TokenTree]) -> Option<(Expr, usize)> {
    let length = chain_length(tokens);
    let is_group = |token: &TokenTree| matches!(token, TokenTree::Group(_));
    let path = tokens[..length].iter().position(is_group).unwrap_or(length);
    let read = |length: usize| {
        let chain: TokenStream = tokens[..length].iter().cloned().collect();
        let expression = syn::parse2::<Expr>(chain).ok().filter(|_| length > 1)?;
        Some((expression, length))
    };
    read(length).or_else(|| read(path))
}

/// The length of `#[test] … { … }`, which is test code.
fn test_code(tokens: &[TokenTree]) -> Option<usize> {
    let [TokenTree::Punct(hash), TokenTree::Group(attribute), ..] = tokens else {
        return None;
    };
    if hash.as_char() != '#' || !is_test_attribute(attribute.stream()) {
        return None;
    }
    let end = tokens.iter().position(|token| is_brace(token) || is_punct(token, ';'));
    Some(end.map_or(tokens.len(), |end| end + 1))
}

fn is_brace(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
}

fn is_punct(token: &TokenTree, char: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == char)
}

/// How many tokens from the first on look like one path with calls and methods behind it.
fn chain_length(tokens: &[TokenTree]) -> usize {
    let starts = match &tokens[0] {
        TokenTree::Ident(_) => true,
        TokenTree::Punct(punct) => joint(punct, ':'),
        _ => false,
    };
    if !starts {
        return 0;
    }
    let mut length = 0;
    let mut wants_name = true;
    while let Some(token) = tokens.get(length) {
        let fits = match token {
            TokenTree::Ident(_) => std::mem::replace(&mut wants_name, false),
            TokenTree::Punct(punct) => match punct.as_char() {
                ':' | '.' => {
                    wants_name = true;
                    true
                }
                '?' => !wants_name,
                _ => false,
            },
            TokenTree::Group(group) => !wants_name && group.delimiter() != Delimiter::Brace,
            TokenTree::Literal(_) => std::mem::replace(&mut wants_name, false) && length > 0,
        };
        if !fits {
            break;
        }
        length += 1;
    }
    length
}

/// What the names of metavariables begin with once their `$` is gone.
pub(crate) const METAVARIABLE: &str = "__meta_";

/// `$x` becomes a name of its own, `$crate` becomes `crate`, and `$( … ),*` what it repeats.
fn without_metavariables(tokens: TokenStream) -> TokenStream {
    let mut plain_tokens = Vec::new();
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == '$' => match tokens.peek() {
                Some(TokenTree::Group(group)) => {
                    plain_tokens.extend(without_metavariables(group.stream()));
                    tokens.next();
                    drop_repetition(&mut tokens, &mut plain_tokens);
                }
                Some(TokenTree::Ident(name)) if name != "crate" => {
                    let marked = format!("{METAVARIABLE}{}", plain(name));
                    // The place stays, so that findings point at what was written.
                    plain_tokens.push(TokenTree::Ident(Ident::new(&marked, name.span())));
                    tokens.next();
                }
                _ => continue,
            },
            TokenTree::Group(group) => {
                let inner = without_metavariables(group.stream());
                let mut copy = Group::new(group.delimiter(), inner);
                copy.set_span(group.span());
                plain_tokens.push(TokenTree::Group(copy));
            }
            token => plain_tokens.push(token),
        }
    }
    plain_tokens.into_iter().collect()
}

/// Takes the `,*` behind a repetition away, and leaves the separator.
fn drop_repetition(
    tokens: &mut std::iter::Peekable<proc_macro2::token_stream::IntoIter>,
    plain: &mut Vec<TokenTree>,
) {
    for _ in 0..2 {
        let Some(TokenTree::Punct(punct)) = tokens.peek() else {
            return;
        };
        let char = punct.as_char();
        if !matches!(char, '*' | '+' | '?' | ',' | ';') {
            return;
        }
        let token = tokens.next();
        if matches!(char, '*' | '+' | '?') {
            return;
        }
        plain.extend(token);
    }
}
