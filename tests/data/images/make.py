#!/usr/bin/env python3
"""Makes the files of this folder, and expected.json: what OpenCV 4.6 reads out of each of them.

Needs OpenCV 4.6 on libjpeg-turbo and libpng (Debian 12: python3-opencv) and cjpeg (libjpeg-turbo-progs).
"""
import hashlib
import json
import os
import struct
import subprocess
import tempfile
import zlib

import cv2
import numpy as np

os.chdir(os.path.dirname(os.path.abspath(__file__)))
assert cv2.__version__.startswith("4.6."), cv2.__version__
rng = np.random.default_rng(1)
MODES = {"native": cv2.IMREAD_UNCHANGED, "color": cv2.IMREAD_COLOR, "gray": cv2.IMREAD_GRAYSCALE}
files = {}


def picture(height, width):
    """Something with slopes, edges and a little noise, in B, G, R."""
    y, x = np.mgrid[0:height, 0:width].astype(float)
    planes = [
        128 + 100 * np.sin(x / 9 + y / 31) + 20 * np.cos(y / 5),
        40 + 170 * x / width + 30 * ((x // 8 + y // 8) % 2),
        220 - 180 * np.hypot(x - width / 2, y - height / 2) / max(height, width),
    ]
    image = np.stack(planes, axis=2) + rng.normal(0, 3, (height, width, 3))
    image[height // 3 : height // 2, width // 4 : width // 2] = (30, 60, 200)
    return np.clip(image, 0, 255).astype(np.uint8)


def cjpeg(image, *options):
    height, width = image.shape[:2]
    ppm = b"P6\n%d %d\n255\n" % (width, height) + image[..., ::-1].tobytes()
    return subprocess.run(["cjpeg", *options], input=ppm, stdout=subprocess.PIPE, check=True).stdout


def exif(orientation, order):
    block = {"<": b"II", ">": b"MM"}[order] + struct.pack(order + "HIH", 42, 8, 1)
    return block + struct.pack(order + "HHIHH", 0x112, 3, 1, orientation, 0) + bytes(4)


def segment(code, data):
    return bytes([0xFF, code]) + struct.pack(">H", len(data) + 2) + data


def late(jpeg, data):
    """Puts a segment behind the frame."""
    at = jpeg.index(b"\xff\xc4")
    return jpeg[:at] + data + jpeg[at:]


def jpegs():
    image = picture(45, 61)
    for name, sampling in [("444", "1x1"), ("422", "2x1"), ("420", "2x2"), ("440", "1x2"), ("411", "4x1")]:
        files[f"{name}.jpg"] = cjpeg(image, "-quality", "85", "-sample", sampling)
    files["420_q30.jpg"] = cjpeg(image, "-quality", "30", "-sample", "2x2")
    files["420_progressive.jpg"] = cjpeg(image, "-quality", "85", "-sample", "2x2", "-progressive")
    files["440_progressive.jpg"] = cjpeg(image, "-quality", "85", "-sample", "1x2", "-progressive")
    files["420_restart.jpg"] = cjpeg(image, "-quality", "85", "-sample", "2x2", "-restart", "3B")
    files["444_restart_progressive.jpg"] = cjpeg(image, "-sample", "1x1", "-restart", "1", "-progressive")
    files["grey.jpg"] = cjpeg(image, "-quality", "85", "-grayscale")
    files["grey_progressive.jpg"] = cjpeg(image, "-quality", "85", "-grayscale", "-progressive")
    files["rgb.jpg"] = rgb = cjpeg(image, "-quality", "85", "-rgb")
    # Not RGB any more: the JFIF segment says so, and libjpeg believes it before all else.
    jfif = segment(0xE0, b"JFIF\0\1\1\0\0\1\0\1\0\0")
    files["rgb_names_jfif.jpg"] = rgb[:2] + jfif + rgb[2:]
    grey = files["grey.jpg"]
    files["grey_adobe.jpg"] = grey[:2] + segment(0xEE, b"Adobe\0d\0\0\0\0\1") + grey[2:]
    files["grey_adobe_late.jpg"] = late(grey, segment(0xEE, b"Adobe\0d\0\0\0\0\1"))
    # Components that are not called R, G and B, and an Adobe segment, in fact two, to say what they are.
    numbered = late(rgb, segment(0xEE, b"Adobe\0d\0\0\0\0\0"))
    for name, number in zip(b"RGB", b"\1\2\3"):
        numbered = numbered.replace(bytes([name, 0x11]), bytes([number, 0x11])).replace(bytes([name, 0]), bytes([number, 0]))
    files["rgb_adobe.jpg"] = numbered
    files["420_stray.jpg"] = files["420.jpg"][:-2] + bytes([0, 0, 17]) + files["420.jpg"][-2:] + b"and more"
    files["1x1.jpg"] = cjpeg(image[:1, :1], "-sample", "2x2")
    # Two of kinds that some decoders read wrongly.
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as scans:
        scans.write("0;1;2;")
        scans.flush()
        files["separate_scans.jpg"] = cjpeg(image, "-quality", "85", "-sample", "2x2", "-scans", scans.name)
    files["unusual_sampling.jpg"] = cjpeg(image, "-quality", "85", "-sample", "1x1,2x1,2x1")
    small = cjpeg(picture(16, 27), "-quality", "90", "-sample", "1x1")
    for orientation in range(10):
        block = segment(0xE1, b"Exif\0\0" + exif(orientation, "<>"[orientation % 2]))
        files[f"exif_{orientation}.jpg"] = small[:2] + block + small[2:]
    # OpenCV looks at the first APP1 segment only, whatever it is called.
    xmp, sixth = segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0"), segment(0xE1, b"Exif\0\0" + exif(6, "<"))
    files["exif_behind_xmp.jpg"] = small[:2] + xmp + sixth + small[2:]


def chunk(kind, data, damage=0):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data) ^ damage)


def rows(samples, bits):
    for row in samples.reshape(len(samples), -1):
        if bits >= 8:
            yield b"\0" + row.astype(">u%d" % (bits // 8)).tobytes()
        else:
            text = "".join(format(value, f"0{bits}b") for value in row)
            text += "0" * (-len(text) % 8)
            yield b"\0" + bytes(int(text[at : at + 8], 2) for at in range(0, len(text), 8))


PASSES = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


def png(samples, bits, kind, before=b"", after=b"", interlaced=False):
    height, width = samples.shape[:2]
    parts = [samples[y::dy, x::dx] for x, y, dx, dy in PASSES] if interlaced else [samples]
    data = b"".join(row for part in parts if part.size for row in rows(part, bits))
    header = struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, interlaced)
    image = chunk(b"IHDR", header) + before + chunk(b"IDAT", zlib.compress(data, 9)) + after
    return b"\x89PNG\r\n\x1a\n" + image + chunk(b"IEND", b"")


def pngs():
    def noise(bits, count):
        return rng.integers(0, 1 << bits, (13, 11, count))

    palette = chunk(b"PLTE", bytes(rng.integers(0, 256, 3 * 16, np.uint8)))
    sixth = chunk(b"eXIf", exif(6, "<"))
    for bits in (1, 2, 4, 8, 16):
        files[f"grey_{bits}.png"] = png(noise(bits, 1), bits, 0, interlaced=bits == 2)
    for name, kind, count in [("grey_alpha", 4, 2), ("rgb", 2, 3), ("rgba", 6, 4)]:
        files[f"{name}_8.png"] = png(noise(8, count), 8, kind)
        files[f"{name}_16.png"] = png(noise(16, count), 16, kind, interlaced=True)
    for bits in (1, 2, 4, 8):
        indices = noise(min(bits, 4), 1)
        files[f"palette_{bits}.png"] = png(indices, bits, 3, palette, interlaced=bits == 1)
        transparent = palette + chunk(b"tRNS", bytes([0, 99]))
        files[f"palette_{bits}_transparent.png"] = png(indices, bits, 3, transparent)
    short = chunk(b"PLTE", bytes(range(9)))
    files["palette_overrun.png"] = png(noise(4, 1), 4, 3, short)
    files["palette_transparent_overrun.png"] = png(noise(1, 1), 4, 3, short + chunk(b"tRNS", bytes(9)))
    rgb, equal = noise(8, 3), noise(8, 3)
    equal[::2] = equal[::2, :, :1]
    colour = chunk(b"tRNS", struct.pack(">3H", *map(int, rgb[0, 0])))
    files["rgb_transparent.png"] = png(rgb, 8, 2, colour)
    files["rgb_transparent_damaged.png"] = png(rgb, 8, 2, chunk(b"tRNS", colour[8:14], damage=1))
    files["grey_transparent.png"] = png(noise(8, 1), 8, 0, chunk(b"tRNS", b"\0\7"))
    for name, before in [
        ("gamma", chunk(b"gAMA", struct.pack(">I", 50000))),
        ("gamma_one", chunk(b"gAMA", struct.pack(">I", 95100))),
        ("gamma_wrong", chunk(b"gAMA", struct.pack(">I", 3)) + chunk(b"sRGB", b"\0")),
        ("srgb", chunk(b"sRGB", b"\1") + chunk(b"gAMA", struct.pack(">I", 90000))),
    ]:
        files[f"rgb_{name}.png"] = png(equal, 8, 2, before)
    files["rgb_equal.png"] = png(equal, 8, 2)
    files["exif_before.png"] = png(rgb, 8, 2, before=sixth)
    files["exif_after.png"] = png(rgb, 8, 2, after=sixth)
    files["exif_damaged.png"] = png(rgb, 8, 2, before=chunk(b"eXIf", exif(6, "<"), damage=1))
    files["resize_grey.png"] = png(picture(40, 52)[..., :1], 8, 0)
    files["resize_rgb.png"] = png(picture(40, 52)[..., ::-1], 8, 2)
    files["resize_rgba.png"] = png(np.dstack([picture(40, 52), picture(40, 52)[..., 1]]), 8, 6)
    files["resize_1x1.png"] = png(picture(1, 1), 8, 2)
    # Profiles: one that libpng takes for sRGB, the same with another date, and one that is none.
    with open("hp_srgb.icc", "rb") as file:
        profile = file.read()
    srgb = chunk(b"iCCP", b"icc\0\0" + zlib.compress(profile, 9))
    other = chunk(b"iCCP", b"icc\0\0" + zlib.compress(profile[:25] + b"\1" + profile[26:], 9))
    junk = chunk(b"iCCP", b"icc\0\0" + zlib.compress(bytes(range(256))))
    linear, gamma = (chunk(b"gAMA", struct.pack(">I", value)) for value in (100000, 50000))
    white, rest = (31270, 32900), (64000, 33000, 30000, 60000, 15000, 6000)
    good, bad = (chunk(b"cHRM", struct.pack(">8I", *points)) for points in (white + rest, (0,) * 8))
    wide = chunk(b"cHRM", struct.pack(">8I", *white, 73470, 26530, 11500, 82600, 15700, 1800))
    for name, before in [
        ("icc", srgb),
        ("icc_gamma", srgb + linear),
        ("gamma_icc", linear + srgb),
        ("icc_other", other + gamma),
        ("icc_junk", junk + gamma),
        ("icc_damaged", srgb[:-1] + bytes([srgb[-1] ^ 1]) + gamma),
        ("icc_short", chunk(b"iCCP", b"icc\0\0" + zlib.compress(b"junk" * 50)) + gamma),
        ("icc_after_srgb", chunk(b"sRGB", b"\0") + srgb + chunk(b"gAMA", struct.pack(">I", 47000))),
        ("chroma", good + gamma),
        ("chroma_wide", wide + gamma),
        ("chroma_wrong", bad + gamma),
        ("chroma_late", gamma + bad),
        ("chroma_twice", good + good + gamma),
        ("chroma_not_srgb", chunk(b"sRGB", b"\0") + wide + chunk(b"gAMA", struct.pack(">I", 47000))),
    ]:
        files[f"rgb_{name}.png"] = png(rgb, 8, 2, before)
    files["palette_icc.png"] = png(noise(4, 1), 8, 3, srgb + palette)
    for name, block in [("short", b"M"), ("order", b"XX" + exif(3, ">")[2:])]:
        files[f"exif_{name}.png"] = png(rgb, 8, 2, before=chunk(b"eXIf", block) + sixth)


def read(data, mode, size=None):
    image = cv2.imdecode(np.frombuffer(data, np.uint8), MODES[mode])
    if image is None or image.dtype != np.uint8:
        return None
    if size:
        image = cv2.resize(image, (size[1], size[0]))
    return np.atleast_3d(image)


def entry(name, mode, size=None):
    image = read(files[name], mode, size)
    if image is None:
        return {"file": name, "mode": mode}
    planes = np.ascontiguousarray(image.transpose(2, 0, 1))
    digest = hashlib.sha256(planes.tobytes()).hexdigest()
    return {"file": name, "mode": mode, "resize": size, "shape": planes.shape, "sha256": digest}


jpegs()
pngs()
expected = [entry(name, mode) for name in files for mode in MODES]
sizes = [(20, 26), (80, 104), (20, 52), (40, 26), (1, 1), (1, 52), (40, 1), (7, 113), (113, 7), (39, 53), (13, 17), (200, 3)]
for name in ["resize_grey.png", "resize_rgb.png", "resize_rgba.png"]:
    expected += [entry(name, "native", size) for size in sizes]
expected += [entry("resize_1x1.png", "native", size) for size in [(1, 2), (2, 1), (5, 9)]]
expected += [entry("exif_before.png", mode, (6, 30)) for mode in MODES]
expected += [entry("palette_4_transparent.png", "color", (26, 22)), entry("grey_8.png", "color", (9, 30))]

for old in os.listdir("."):
    if old.endswith((".jpg", ".png")):
        os.remove(old)
for name, data in files.items():
    with open(name, "wb") as file:
        file.write(data)
with open("expected.json", "w") as file:
    file.write("[\n" + ",\n".join(map(json.dumps, expected)) + "\n]\n")
