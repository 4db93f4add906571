"""Fine-tune a Hugging Face model with LoRA on texts in local folders; resume after an interruption."""

from __future__ import annotations

from pathlib import Path

import ludus

FOLDER = Path("huggingface")
WORDS = [
    "[PAD]",
    "[UNK]",
    "the",
    "a",
    "good",
    "great",
    "fine",
    "bad",
    "poor",
    "dull",
    "film",
    "book",
]


def write_base() -> None:
    """Write a model, its tokenizer and labelled rows of text, which you would already have."""
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

    words = models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="[UNK]")
    tokenizer = Tokenizer(words)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]")
    fast.save_pretrained(FOLDER / "base")
    shape = BertConfig(
        vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=16, id2label={0: "bad", 1: "good"},
    )  # fmt: skip
    BertForSequenceClassification(shape).save_pretrained(FOLDER / "base")
    rows = [
        {"text": f"{article} {WORDS[4 + n % 6]} {thing}", "label": int(n % 6 < 3)}
        for n in range(24)
        for article in ("the", "a")
        for thing in ("film", "book")
    ]
    Dataset.from_list(rows).save_to_disk(FOLDER / "reviews")


def main() -> None:
    """Train for a few epochs and print the result."""
    if not FOLDER.exists():
        write_base()
    config = ludus.example("supervised").replace(
        name="huggingface-example",
        data={
            "kind": "huggingface", "path": str(FOLDER / "reviews"), "validation_path": None,
            "test_path": None, "validation_fraction": 0.2, "test_fraction": 0.2,
            "task": "classification", "text": ["text"], "label": "label",
            "tokenizer": str(FOLDER / "base"), "max_length": 16, "padding": "longest",
        },
        model={
            "kind": "huggingface", "auto_class": "AutoModelForSequenceClassification",
            "path": str(FOLDER / "base"), "config": {}, "adapter": {
                "kind": "lora", "r": 4, "alpha": 8.0, "dropout": 0.0,
                "target_modules": ["query", "value"], "modules_to_save": ["classifier"],
                "bias": "none",
            },
        },
        loss="from_model",
        batch_size=8,
        max_epochs=8,
        engine="eager",
        learning_rate_schedule={"kind": "constant", "warmup_steps": 0},
        **{"optimizer.learning_rate": 0.01},
    )  # fmt: skip
    trainer = ludus.Trainer(config)
    result = trainer.fit(resume=True)
    num_trained = sum(weight.numel() for weight in trainer.weights().values())
    print(f"{result.status}; {num_trained} numbers were trained and saved; best {result.best}")


if __name__ == "__main__":
    main()
