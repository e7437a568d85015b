//! From bytes to a syntax tree, or to the finding that says why not.

use std::path::Path;

use proc_macro2::{LineColumn, TokenStream};
use syn::parse::Parser as _;

use crate::finding::{Finding, Rule};
use crate::nesting;

/// The text of the file, or the finding that stands for it.
pub(crate) fn text<'a>(
    path: &Path,
    bytes: &'a Result<Vec<u8>, String>,
) -> Result<&'a str, Box<Finding>> {
    match bytes {
        Ok(bytes) => std::str::from_utf8(bytes).map_err(|error| {
            let valid = bytes.get(..error.valid_up_to()).unwrap_or_default();
            let valid = String::from_utf8_lossy(valid);
            let line_start = valid.rfind('\n').map_or(0, |at| at + 1);
            let at = LineColumn {
                line: valid.matches('\n').count() + 1,
                column: valid[line_start..].chars().count(),
            };
            finding(path, "", at, "the file is not UTF-8")
        }),
        Err(error) => {
            let message = format!("the file cannot be read: {error}");
            let mut unread = finding(path, "", LineColumn { line: 1, column: 0 }, &message);
            unread.rule = Rule::UnreadFile;
            unread.help = "make it readable, or remove it: what is not read is not checked".into();
            Err(unread)
        }
    }
}

/// The syntax tree of the text. A list of statements is no file of its own, but it can be included:
/// then the tree has them in a function, with the finding for the case that nothing includes it.
pub(crate) fn syntax(path: &Path, text: &str) -> Result<Parsed, Box<Finding>> {
    // What `syn::parse_file` does too, but the tokens are measured before anything recurses.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    // The end of the shebang's line stays, so that lines still count from the top.
    let stream: TokenStream =
        text[shebang_length(text)..].parse().map_err(|error: proc_macro2::LexError| {
            finding(path, text, error.span().start(), "this is not Rust: a token is malformed")
        })?;
    if let Some(span) = nesting::too_deep(&stream) {
        return Err(finding(path, text, span.start(), "the nesting is too deep to check"));
    }
    let error = match syn::parse2(stream.clone()) {
        Ok(file) => return Ok((file, None)),
        Err(error) => error,
    };
    let finding = finding(path, text, error.span().start(), &format!("this is not Rust: {error}"));
    match statements(stream) {
        Some(file) => Ok((file, Some(finding))),
        None => Err(finding),
    }
}

/// A tree, and a finding unless something includes the file.
pub(crate) type Parsed = (syn::File, Option<Box<Finding>>);

/// A file that holds statements or one expression, as the body of a function.
fn statements(stream: TokenStream) -> Option<syn::File> {
    let stmts = syn::Block::parse_within.parse2(stream).ok()?;
    let mut file: syn::File = syn::parse_quote!(
        fn included() {}
    );
    if let [syn::Item::Fn(function)] = &mut file.items[..] {
        function.block.stmts = stmts;
    }
    Some(file)
}

/// `#!` starts a shebang unless it is the beginning of an inner attribute.
fn shebang_length(text: &str) -> usize {
    let Some(rest) = text.strip_prefix("#!") else {
        return 0;
    };
    if rest.trim_start().starts_with('[') {
        return 0;
    }
    text.find('\n').unwrap_or(text.len())
}

fn finding(path: &Path, text: &str, at: LineColumn, message: &str) -> Box<Finding> {
    let line = at.line.max(1);
    Box::new(Finding {
        rule: Rule::ParseError,
        path: path.to_owned(),
        line,
        column: at.column + 1,
        width: 1,
        message: message.to_owned(),
        help: "make it compile first: a file that is not understood is not checked".to_owned(),
        source_line: text.lines().nth(line - 1).unwrap_or_default().to_owned(),
    })
}
