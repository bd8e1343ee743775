"""Draw `receipt.png`, with a font that Pillow brings."""

from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

LINES = "CORNER SHOP", "Milk 2.49", "Coffee beans 11.80", "Oranges 3.15", "Total 17.44", "Thank you"

page = Image.new("RGB", (460, 420), (246, 242, 230))
draw = ImageDraw.Draw(page)
for number, line in enumerate(LINES):
    draw.text((40, 30 + 62 * number), line, (40, 40, 60), ImageFont.load_default(30))
page.rotate(2, fillcolor=(246, 242, 230)).save(Path(__file__).parent / "receipt.png")
