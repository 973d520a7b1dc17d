#!/usr/bin/env python3
"""Makes the files of this folder, and expected.jsonl: what OpenCV and Pillow read out of each of them.

Needs OpenCV 5.0, Pillow 13.0, and tifffile with imagecodecs. A line is left out where the library refuses the
file, or makes something else of it than bytes.
"""
import hashlib
import io
import json
import os
import struct

import cv2
import numpy as np
import tifffile
from PIL import Image, ImageOps

os.chdir(os.path.dirname(os.path.abspath(__file__)))
rng = np.random.default_rng(3)
files = {}


def levels(*shape):
    return rng.integers(0, 256, shape, dtype=np.uint8)


# GIF, with codes that are reset before they grow.
def gif(width, height, colours, places, at=None, size=None, clear=None, background=0, own=None, screen=True,
        interlaced=False, many=1):
    bits = max(2, (len(colours) // 3 - 1).bit_length())
    table = lambda colours: bytes(colours).ljust(3 << bits, b"\0")
    out = b"GIF89a" + struct.pack("<HHBBB", width, height, (0x80 | bits - 1) if screen else 0, background, 0)
    if screen:
        out += table(colours)
    for frame in range(many):
        if clear is not None and frame == 0:
            out += b"\x21\xf9\x04\x01\0\0" + bytes([clear, 0])
        if many > 1 and frame == 1:
            out += b"\x21\xf9\x04\x09\0\0\x02\0"
        flags = ((0x80 | bits - 1) if own is not None else 0) | (0x40 if interlaced else 0)
        out += b"," + struct.pack("<HHHHB", *(at or (0, 0)), *(size or (width, height)), flags)
        if own is not None:
            out += table(own)
        codes = []
        for count, place in enumerate(places):
            codes += [1 << bits] * (count % ((1 << bits) - 2) == 0) + [int(place)]
        number = sum(code << at * (bits + 1) for at, code in enumerate(codes + [(1 << bits) + 1]))
        data = number.to_bytes(((len(codes) + 1) * (bits + 1) + 7) // 8, "little")
        out += bytes([bits])
        out += b"".join(bytes([len(data[i : i + 255])]) + data[i : i + 255] for i in range(0, len(data), 255))
        out += b"\0"
    return out + b";"


for name, colours in [("16", levels(48)), ("256", levels(768)), ("2", levels(6))]:
    count = len(colours) // 3
    places = rng.integers(0, count, 21 * 13)
    files[f"{name}.gif"] = gif(21, 13, colours, places)
    files[f"{name}_interlaced.gif"] = gif(21, 13, colours, places, interlaced=True)
    files[f"{name}_clear.gif"] = gif(21, 13, colours, places, clear=1, background=count - 1)
    files[f"{name}_own_clear.gif"] = gif(21, 13, colours, places, clear=1, background=1, own=colours[::-1])
    files[f"{name}_own_alone.gif"] = gif(21, 13, colours, places, clear=1, own=colours[::-1], screen=False)
    part = dict(at=(4, 3), size=(13, 7), background=1)
    files[f"{name}_part.gif"] = gif(21, 13, colours, places[:91], **part)
    files[f"{name}_part_clear.gif"] = gif(21, 13, colours, places[:91], clear=0, **part)
    files[f"{name}_part_own.gif"] = gif(21, 13, colours, places[:91], own=colours[::-1], **part)
    files[f"{name}_later_clear.gif"] = gif(21, 13, colours, places, many=2)


# BMP.
WIDTH, HEIGHT = 13, 11
palette = levels(256, 4)
palette[:, 3] = 0
greys = np.repeat(np.arange(256, dtype=np.uint8), 4)


def bmp(bits, data=None, colours=b"", packing=0, header=40, masks=b"", count=0, top_down=False):
    if data is None:
        data = levels(HEIGHT, (WIDTH * bits + 31) // 32 * 4).tobytes()
    if header == 12:
        head, masks = struct.pack("<IHHHH", 12, WIDTH, HEIGHT, 1, bits), b""
    else:
        sides = (WIDTH, -HEIGHT if top_down else HEIGHT)
        head = struct.pack("<IiiHHIIiiII", header, *sides, 1, bits, packing, len(data), 0, 0, count, 0)
        if header > 40:
            head, masks = (head + masks).ljust(header, b"\0"), b""
    start = 14 + len(head) + len(masks) + len(colours)
    return b"BM" + struct.pack("<IHHI", start + len(data), 0, 0, start) + head + masks + colours + data


def runs(bits):
    out = b""
    for _ in range(HEIGHT):
        left = WIDTH
        while left:
            count = min(int(rng.integers(1, 7)), left)
            if count >= 3 and rng.random() < 0.5:
                out += bytes([0, count]) + levels((count * bits + 15) // 16 * 2).tobytes()
            else:
                out += bytes([count, int(rng.integers(0, 256))])
            left -= count
        out += b"\0\0"
    return out + b"\0\1"


bytes_of = lambda count: palette[:count].tobytes()
files |= {
    "1.bmp": bmp(1, colours=bytes_of(2)),
    "1_black_white.bmp": bmp(1, colours=b"\0\0\0\0\xff\xff\xff\0"),
    "1_white_black.bmp": bmp(1, colours=b"\xff\xff\xff\0\0\0\0\0"),
    "4.bmp": bmp(4, colours=bytes_of(16)),
    "4_few.bmp": bmp(4, colours=bytes_of(10), count=10),
    "8.bmp": bmp(8, colours=bytes_of(256)),
    "8_few.bmp": bmp(8, colours=bytes_of(200), count=200),
    "8_grey.bmp": bmp(8, colours=greys.tobytes()),
    "8_grey_down.bmp": bmp(8, colours=greys[::-1].tobytes()),
    "8_top_down.bmp": bmp(8, colours=bytes_of(256), top_down=True),
    "8_os2.bmp": bmp(8, colours=palette[:, :3].tobytes(), header=12),
    "8_runs.bmp": bmp(8, runs(8), bytes_of(256), packing=1),
    "8_runs_grey.bmp": bmp(8, runs(8), greys.tobytes(), packing=1),
    "8_runs_skip.bmp": bmp(8, b"\5\7\0\0\0\2\3\2\4\x09\0\1", bytes_of(256), packing=1),
    "4_runs.bmp": bmp(4, runs(4), bytes_of(16), packing=2),
    "16.bmp": bmp(16),
    "16_565.bmp": bmp(16, packing=3, masks=struct.pack("<III", 0xF800, 0x7E0, 0x1F)),
    "16_555.bmp": bmp(16, packing=3, masks=struct.pack("<III", 0x7C00, 0x3E0, 0x1F)),
    "24.bmp": bmp(24),
    "24_os2.bmp": bmp(24, header=12),
    "24_v5.bmp": bmp(24, header=124),
    "32.bmp": bmp(32),
    "32_top_down.bmp": bmp(32, top_down=True),
    "32_v4.bmp": bmp(32, header=108),
}
BGRA = (0xFF0000, 0xFF00, 0xFF, 0xFF000000)
for name, header, masks in [
    ("bgr", 40, BGRA[:3]),
    ("rgb", 40, (0xFF, 0xFF00, 0xFF0000)),
    ("xbgr", 40, (0xFF000000, 0xFF0000, 0xFF00)),
    ("bgra_v4", 108, BGRA),
    ("rgba_v4", 108, (0xFF, 0xFF00, 0xFF0000, 0xFF000000)),
    ("bgr_v5", 124, (*BGRA[:3], 0)),
]:
    files[f"32_{name}.bmp"] = bmp(32, packing=3, header=header, masks=struct.pack(f"<{len(masks)}I", *masks))


# PNM.
def pnm(kind, most, samples, text=False, head=b"%b\n13 11\n"):
    if text:
        rows = [b" ".join(b"%d" % sample for sample in row) for row in samples.reshape(11, -1)]
        data = b"\n".join(rows) + b"\n"
    else:
        data = samples.astype(">u2" if most > 255 else np.uint8).tobytes()
    return head % kind + (b"%d\n" % most if most else b"") + data


for most in [1, 15, 100, 254, 255, 256, 1000, 65535]:
    for name, kinds, channels in [("pgm", (b"P5", b"P2"), 1), ("ppm", (b"P6", b"P3"), 3)]:
        samples = rng.integers(0, most + 1, (11, 13, channels))
        files[f"{most}.{name}"] = pnm(kinds[0], most, samples)
        files[f"{most}_text.{name}"] = pnm(kinds[1], most, samples, text=True)
files |= {
    "comments.pgm": pnm(b"P5", 255, levels(11, 13), head=b"%b # one\n#two\n 13\t# three\n11 \n"),
    "crlf.ppm": b"P6\r\n13 11\r\n255\r" + levels(11, 13, 3).tobytes(),
    "comments_text.pgm": b"P2\n13 11\n255\n# here\n" + pnm(b"", 0, levels(11, 13), text=True, head=b"%b"),
    "bits.pbm": b"P4\n13 11\n" + levels(11, 2).tobytes(),
    "bits_text.pbm": pnm(b"P1", 0, rng.integers(0, 2, (11, 13)), text=True),
    "bits_text_close.pbm": b"P1\n13 11\n" + bytes(rng.integers(0x30, 0x32, 143, dtype=np.uint8)) + b"\n",
    "above.pgm": b"P5\n13 11\n100\n" + levels(11, 13).tobytes(),
}


# TIFF.
def tiff(samples, order="<", **how):
    out = io.BytesIO()
    with tifffile.TiffWriter(out, byteorder=order, bigtiff=how.pop("big", False)) as writer:
        writer.write(samples, metadata=None, **how)
    return out.getvalue()


def plain_tiff(bits, space, count=1, colours=None, extra=None, turn=None):
    """A file as baseline TIFF has it, of one strip."""
    data = levels(17, (23 * count * bits + 7) // 8).tobytes()
    tags = [(256, [23]), (257, [17]), (258, [bits] * count), (259, [1]), (262, [space]), (277, [count])]
    tags += [(278, [17]), (279, [len(data)])]
    tags += [(274, [turn])] if turn else []
    tags += [(320, colours)] if colours is not None else []
    tags += [(338, [extra])] if extra is not None else []
    tags = sorted(tags + [(273, [0])])
    rest, entries = 8 + 2 + 12 * len(tags) + 4, b""
    more = b""
    for tag, values in tags:
        packed = struct.pack(f"<{len(values)}H", *values)
        if len(packed) > 4:
            packed, more = struct.pack("<I", rest + len(more)), more + packed
        entries += struct.pack("<HHI", tag, 3, len(values)) + packed.ljust(4, b"\0")
    start = struct.pack("<I", rest + len(more))
    entries = entries.replace(
        struct.pack("<HHII", 273, 3, 1, 0), struct.pack("<HHI", 273, 4, 1) + start
    )
    return b"II*\0\x08\0\0\0" + struct.pack("<H", len(tags)) + entries + b"\0" * 4 + more + data


wide = rng.integers(0, 65536, (37, 43, 3), dtype=np.uint16)
rgb, rgba, grey = levels(37, 43, 3), levels(37, 43, 4), levels(37, 43)
smooth = np.add.outer(np.arange(37), np.arange(43)).astype(np.uint8)
smooth = smooth[..., None] * np.array([1, 2, 3], np.uint8)
files |= {
    "big_endian.tif": tiff(rgb, ">", photometric="rgb"),
    "offsets_64.tif": tiff(rgb, photometric="rgb", big=True),
    "planar.tif": tiff(rgb.transpose(2, 0, 1).copy(), photometric="rgb", planarconfig="separate"),
    "planar_16.tif": tiff(wide.transpose(2, 0, 1).copy(), photometric="rgb", planarconfig="separate"),
    "tiles.tif": tiff(np.vstack([rgb, rgb])[:64, :32], photometric="rgb", tile=(16, 16), compression="zlib"),
    "tiles_beyond.tif": tiff(smooth, photometric="rgb", tile=(16, 16), compression="zlib"),
    "tiles_grey.tif": tiff(grey, photometric="minisblack", tile=(32, 16), compression="zlib"),
    "lzw.tif": tiff(smooth, photometric="rgb", compression="lzw"),
    "lzw_predicted.tif": tiff(rgb, photometric="rgb", compression="lzw", predictor=True),
    "deflate_predicted.tif": tiff(smooth, photometric="rgb", compression="zlib", predictor=True),
    "deflate_strips.tif": tiff(smooth, photometric="rgb", compression="zlib", rowsperstrip=5),
    "packbits.tif": tiff(smooth, photometric="rgb", compression="packbits", rowsperstrip=7),
    "rgba_separate.tif": tiff(rgba, photometric="rgb", extrasamples=["unassalpha"]),
    "rgba_associated.tif": tiff(rgba, photometric="rgb", extrasamples=["assocalpha"]),
    "rgba_unknown.tif": tiff(rgba, photometric="rgb", extrasamples=["unspecified"]),
    "grey_alpha.tif": tiff(
        rgba[..., :2].copy(), photometric="minisblack", planarconfig="contig", extrasamples=["unassalpha"]
    ),
    "white_is_zero.tif": tiff(grey, photometric="miniswhite", compression="zlib"),
    "grey_16.tif": tiff(levels(37, 43).astype(np.uint16) * 2, ">", photometric="minisblack"),
    "rgb_16_predicted.tif": tiff(wide, photometric="rgb", compression="lzw", predictor=True),
    "two_images.tif": tiff(np.stack([rgb, rgb[::-1]]), photometric="rgb"),
}
for bits in [1, 2, 4, 8, 16]:
    for space in [0, 1]:
        files[f"grey_{bits}_{space}.tif"] = plain_tiff(bits, space)
for bits in [1, 2, 4, 8]:
    files[f"palette_{bits}.tif"] = plain_tiff(bits, 3, colours=rng.integers(0, 65536, 3 << bits))
    files[f"palette_of_bytes_{bits}.tif"] = plain_tiff(bits, 3, colours=rng.integers(0, 256, 3 << bits))
files |= {
    "rgb_16.tif": plain_tiff(16, 2, 3),
    "rgba_16.tif": plain_tiff(16, 2, 4, extra=2),
    "rgba_plain.tif": plain_tiff(8, 2, 4),
}
for turn in range(1, 9):
    files[f"turn_{turn}.tif"] = plain_tiff(8, 2, 3, turn=turn)
files["turn_6_grey.tif"] = plain_tiff(8, 1, turn=6)


# WebP.
def webp(image, **how):
    out = io.BytesIO()
    image.save(out, "webp", **how)
    return out.getvalue()


def flag(file, bit):
    at = file.find(b"VP8X") + 8
    return file[:at] + bytes([file[at] ^ bit]) + file[at + 1 :]


turned = Image.Exif()
turned[0x112] = 6
slope = np.clip(np.dstack([smooth, smooth[..., ::-1]])[..., :4].astype(int) + levels(37, 43, 1) // 16, 0, 255)
clear, full = Image.fromarray(slope.astype(np.uint8)), Image.fromarray(slope[..., :3].astype(np.uint8))
for name, image in [("rgb", full), ("rgba", clear)]:
    for lossless in [False, True]:
        kind = f"{name}_{'lossless' if lossless else 'lossy'}"
        file = webp(image, lossless=lossless, exact=True, exif=turned, quality=60)
        files[f"{kind}.webp"] = webp(image, lossless=lossless, exact=True, quality=60)
        files[f"{kind}_turned.webp"] = file
        files[f"{kind}_other_alpha_flag.webp"] = flag(file, 0x10)
        files[f"{kind}_no_exif_flag.webp"] = flag(file, 0x08)
for filter, quality in [(0, 0), (1, 20), (2, 60), (3, 90)]:
    files[f"alpha_{quality}.webp"] = webp(clear, quality=quality, alpha_quality=quality, method=filter)
files["palette_2.webp"] = webp(full.quantize(2).convert("RGB"), lossless=True)
files["palette_9.webp"] = webp(full.quantize(9).convert("RGB"), lossless=True)
for name, images in [("rgb", [full, full.rotate(180)]), ("rgba", [clear, clear.rotate(180)])]:
    file = webp(images[0], save_all=True, append_images=images[1:], quality=70)
    frame, head, back = file.find(b"ANMF") + 8, file.find(b"VP8X") + 12, file.find(b"ANIM") + 8
    file = bytearray(file)
    files[f"frames_{name}.webp"] = bytes(file)
    # The frame on a larger canvas.
    file[head : head + 6] = (59).to_bytes(3, "little") + (49).to_bytes(3, "little")
    file[frame : frame + 6] = (3).to_bytes(3, "little") + (4).to_bytes(3, "little")
    file[back : back + 4] = bytes([10, 20, 30, 255])
    files[f"frames_{name}_part.webp"] = bytes(file)


def of(array):
    if array is None or array.dtype != np.uint8:
        return None
    array = np.ascontiguousarray(array)
    height, width, *channels = array.shape
    return [*(channels or [1]), height, width], hashlib.sha256(array.tobytes()).hexdigest()


def reads(file):
    def pillow(open):
        try:
            return of(np.array(open(Image.open(io.BytesIO(file))).convert("RGB")))
        except (OSError, ValueError, Image.DecompressionBombError):
            return None

    def opencv(flag):
        return of(cv2.imdecode(np.frombuffer(file, np.uint8), flag))

    return {
        "native": opencv(cv2.IMREAD_UNCHANGED),
        "color": opencv(cv2.IMREAD_COLOR),
        "gray": opencv(cv2.IMREAD_GRAYSCALE),
        "rgb": pillow(lambda image: image),
        "upright": pillow(ImageOps.exif_transpose),
    }


# Pillow takes planes of 16 bits for planes of bytes.
WRONG = [("planar_16.tif", "rgb"), ("planar_16.tif", "upright")]

lines = []
for name, file in sorted(files.items()):
    with open(name, "wb") as out:
        out.write(file)
    for mode, found in reads(file).items():
        if found and (name, mode) not in WRONG:
            shape, checksum = found
            lines.append(json.dumps({"file": name, "mode": mode, "shape": shape, "sha256": checksum}))
with open("expected.jsonl", "w") as out:
    out.write("\n".join(lines) + "\n")
