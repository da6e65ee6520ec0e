//! The examples in README and guides: fenced blocks and their info strings.

use std::path::{Path, PathBuf};

/// A fenced block.
pub(crate) struct Block {
    /// File and line, for messages.
    pub(crate) place: String,
    /// The words after the fence: the language, and marks that readers do not see.
    pub(crate) info: Vec<String>,
    pub(crate) text: String,
}

impl Block {
    /// Its language; empty for output.
    pub(crate) fn language(&self) -> &str {
        self.info.first().map_or("", String::as_str)
    }

    /// The commands of a `sh` block, without comments.
    pub(crate) fn commands(&self) -> Vec<String> {
        let lines = self.text.lines().map(|line| line.split(" #").next().unwrap_or_default());
        lines.map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }
}

/// The files with examples: README, CONTRIBUTING and every guide.
pub(crate) fn files() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let guides = std::fs::read_dir(root.join("docs/guide")).expect("there are guides");
    let mut files: Vec<_> = guides.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files.splice(0..0, ["README.md", "CONTRIBUTING.md"].map(|name| root.join(name)));
    files
}

/// All blocks of all files.
pub(crate) fn blocks() -> Vec<Block> {
    files().iter().flat_map(|file| of(file)).collect()
}

/// The blocks of one file.
pub(crate) fn of(file: &Path) -> Vec<Block> {
    let text = std::fs::read_to_string(file).expect("a file with examples");
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let (mut blocks, mut open) = (Vec::new(), None::<Block>);
    for (number, line) in (1..).zip(text.lines()) {
        match (line.strip_prefix("```"), open.take()) {
            (Some(_), Some(block)) => blocks.push(block),
            (Some(info), None) => {
                let info = info.split([' ', ',']).filter(|word| !word.is_empty());
                open = Some(Block {
                    place: format!("{name}:{number}"),
                    info: info.map(str::to_owned).collect(),
                    text: String::new(),
                });
            }
            (None, Some(mut block)) => {
                block.text.push_str(line);
                block.text.push('\n');
                open = Some(block);
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "{name}: a block does not end");
    blocks
}
