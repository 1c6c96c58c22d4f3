//! YAML from somebody else. The library expands every alias and goes as deep as the text does, so a few hundred bytes can ask for all
//! of the memory or the stack: what a text would become is counted before anything is built.

use std::collections::HashMap;

use yaml_rust2::parser::{Event, Parser};
use yaml_rust2::{Yaml, YamlLoader};

/// Longest text.
const TEXT_BYTES_MAX: usize = 64 << 10;
/// Most that a text may become: its scalars, and `NODE_BYTES` for each node, aliases expanded.
const EXPANDED_BYTES_MAX: usize = 4 << 20;
const NODE_BYTES: usize = 64;
const DEPTH_MAX: usize = 32;

/// The first document of a text.
///
/// # Errors
/// What was wrong with it, without anything of the text.
pub fn first_document(text: &str) -> Result<Yaml, String> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(format!(
            "is longer than {} KiB: expected a driver file of OMB",
            TEXT_BYTES_MAX >> 10
        ));
    }
    check_growth(text)?;
    let documents = YamlLoader::load_from_str(text).map_err(|error| no_yaml(error.marker().line()))?;
    documents.into_iter().next().ok_or_else(|| "is empty".to_owned())
}

fn no_yaml(line: usize) -> String {
    format!("is no YAML (line {line})")
}

/// Looks whether what the text becomes is bounded.
fn check_growth(text: &str) -> Result<(), String> {
    let mut parser = Parser::new_from_str(text);
    let mut anchored: HashMap<usize, usize> = HashMap::new();
    // What is open: the number of its anchor, and its bytes so far. The first is the whole text.
    let mut open = vec![(0, 0)];
    loop {
        let (event, marker) = parser
            .next_token()
            .map_err(|error| no_yaml(error.marker().line()))?;
        let bytes = match event {
            Event::StreamEnd => return Ok(()),
            Event::SequenceStart(anchor, _) | Event::MappingStart(anchor, _) => {
                open.push((anchor, NODE_BYTES));
                0
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let (anchor, bytes) = open.pop().unwrap_or_default();
                anchored.insert(anchor, bytes);
                bytes
            }
            Event::Scalar(value, _, anchor, _) => {
                let bytes = NODE_BYTES + value.len();
                anchored.insert(anchor, bytes);
                bytes
            }
            Event::Alias(anchor) => anchored.get(&anchor).copied().unwrap_or(NODE_BYTES),
            _ => 0,
        };
        if let Some((_, sum)) = open.last_mut() {
            *sum += bytes;
        }
        if open.len() > DEPTH_MAX + 1 {
            return Err(format!(
                "nests deeper than {DEPTH_MAX} levels (line {})",
                marker.line()
            ));
        }
        if open.iter().map(|(_, bytes)| bytes).sum::<usize>() > EXPANDED_BYTES_MAX {
            return Err(format!(
                "becomes more than {} MiB when its aliases are expanded (line {})",
                EXPANDED_BYTES_MAX >> 20,
                marker.line()
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

    use super::*;

    #[test]
    fn aliases_are_read_as_long_as_they_are_few() {
        let read = first_document("a: &x {b: 1}\nc: *x\n").unwrap();
        assert_eq!(read["c"]["b"].as_i64(), Some(1));
        let levels: Vec<String> = (1..20)
            .map(|level| {
                format!(
                    "l{level}: &l{level} [{}]",
                    vec![format!("*l{}", level - 1); 9].join(", ")
                )
            })
            .collect();
        let bomb = format!("l0: &l0 lol\n{}\n", levels.join("\n"));
        let refusal = first_document(&bomb).unwrap_err();
        assert!(refusal.contains("aliases are expanded (line"), "{refusal}");
    }

    #[test]
    fn depth_and_length_are_bounded() {
        // The library's scanner has a limit of its own for brackets, which comes first.
        for deep in ["[".repeat(60_000), "{a: ".repeat(10_000)] {
            first_document(&deep).unwrap_err();
        }
        for deep in ["- ".repeat(30_000), "[".repeat(40) + &"]".repeat(40)] {
            let refusal = first_document(&deep).unwrap_err();
            assert!(refusal.contains("nests deeper than 32"), "{refusal}");
        }
        let refusal = first_document(&"a".repeat(TEXT_BYTES_MAX + 1)).unwrap_err();
        assert!(refusal.contains("longer than 64 KiB"), "{refusal}");
        assert_eq!(first_document("").unwrap_err(), "is empty");
        assert_eq!(first_document("a: *none").unwrap_err(), "is no YAML (line 1)");
    }
}
