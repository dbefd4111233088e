/* An adapter for the known-answer tests in plain C11, nothing beyond libc: sm3, hmac_sm3, sm4_ctr, fnv1a64, quantize and
 * dequantize of vqf_q8_0 and vqf_q4_0, vqf_header and vqf_directory. It is written to be read, and to be taken apart: each
 * operation is a function that you can replace by your own.
 *
 *     cc -std=c11 -O2 -o adapter adapter.c
 *     python3 -m vqfref kat run -- ./adapter
 *
 * Protocol: kat/README.md, section 4. Single precision is taken literally: compile without -ffast-math and, on machines
 * that fuse, with -ffp-contract=off. CC0. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LINE = 65536 };

/* ---- hex and fields */

typedef struct { unsigned char *data; size_t size; } bytes;
typedef struct { char *name, *value; } field;

static int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

static bytes unhex(const char *text) {
  bytes b = {malloc(strlen(text) / 2 + 1), strlen(text) / 2};
  if (!b.data) exit(3);
  for (size_t i = 0; i < b.size; i++) b.data[i] = (unsigned char)(digit(text[2 * i]) << 4 | digit(text[2 * i + 1]));
  return b;
}

static void put_hex(const unsigned char *data, size_t size) {
  for (size_t i = 0; i < size; i++) printf("%02x", data[i]);
}

static uint64_t le(const unsigned char *p, int n) {
  uint64_t v = 0;
  while (n--) v = v << 8 | p[n];
  return v;
}

static uint32_t be32(const unsigned char *p) { return (uint32_t)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3]; }
static void put_be32(unsigned char *p, uint32_t v) { p[0] = v >> 24; p[1] = v >> 16; p[2] = v >> 8; p[3] = v; }
static uint32_t rotl(uint32_t x, int k) { k &= 31; return k ? x << k | x >> (32 - k) : x; }

/* ---- SM3, GB/T 32905-2016 */

static void sm3_block(uint32_t v[8], const unsigned char *p) {
  uint32_t w[68], s[8];
  for (int j = 0; j < 16; j++) w[j] = be32(p + 4 * j);
  for (int j = 16; j < 68; j++) {
    uint32_t x = w[j - 16] ^ w[j - 9] ^ rotl(w[j - 3], 15);
    w[j] = (x ^ rotl(x, 15) ^ rotl(x, 23)) ^ rotl(w[j - 13], 7) ^ w[j - 6];
  }
  memcpy(s, v, sizeof s);
  for (int j = 0; j < 64; j++) {
    uint32_t a = s[0], b = s[1], c = s[2], e = s[4], f = s[5], g = s[6];
    uint32_t ss1 = rotl(rotl(a, 12) + e + rotl(j < 16 ? 0x79cc4519u : 0x7a879d8au, j), 7), ss2 = ss1 ^ rotl(a, 12);
    uint32_t ff = j < 16 ? a ^ b ^ c : (a & b) | (a & c) | (b & c), gg = j < 16 ? e ^ f ^ g : (e & f) | (~e & g);
    uint32_t tt1 = ff + s[3] + ss2 + (w[j] ^ w[j + 4]), tt2 = gg + s[7] + ss1 + w[j];
    s[3] = c; s[2] = rotl(b, 9); s[1] = a; s[0] = tt1;
    s[7] = g; s[6] = rotl(f, 19); s[5] = e; s[4] = tt2 ^ rotl(tt2, 9) ^ rotl(tt2, 17);
  }
  for (int i = 0; i < 8; i++) v[i] ^= s[i];
}

static void sm3(const unsigned char *msg, size_t size, unsigned char out[32]) {
  uint32_t v[8] = {0x7380166f, 0x4914b2b9, 0x172442d7, 0xda8a0600, 0xa96f30bc, 0x163138aa, 0xe38dee4d, 0xb0fb0e4e};
  unsigned char end[128] = {0};
  size_t whole = size / 64 * 64, rest = size - whole, tail = rest < 56 ? 64 : 128;
  for (size_t i = 0; i < whole; i += 64) sm3_block(v, msg + i);
  if (rest) memcpy(end, msg + whole, rest);
  end[rest] = 0x80;
  for (int i = 0; i < 8; i++) end[tail - 1 - i] = (unsigned char)((uint64_t)size * 8 >> 8 * i);
  for (size_t i = 0; i < tail; i += 64) sm3_block(v, end + i);
  for (int i = 0; i < 8; i++) put_be32(out + 4 * i, v[i]);
}

static void hmac_sm3(bytes key, bytes msg, unsigned char out[32]) {
  unsigned char k[64] = {0}, outer[96], *inner = malloc(64 + msg.size);
  if (!inner) exit(3);
  if (key.size > 64) sm3(key.data, key.size, k);
  else memcpy(k, key.data, key.size);
  for (int i = 0; i < 64; i++) { inner[i] = k[i] ^ 0x36; outer[i] = k[i] ^ 0x5c; }
  memcpy(inner + 64, msg.data, msg.size);
  sm3(inner, 64 + msg.size, outer + 64);
  sm3(outer, 96, out);
  free(inner);
}

/* ---- SM4, GB/T 32907-2016, counter mode */

static const unsigned char SBOX[256] = {
  0xd6,0x90,0xe9,0xfe,0xcc,0xe1,0x3d,0xb7,0x16,0xb6,0x14,0xc2,0x28,0xfb,0x2c,0x05,0x2b,0x67,0x9a,0x76,0x2a,0xbe,
  0x04,0xc3,0xaa,0x44,0x13,0x26,0x49,0x86,0x06,0x99,0x9c,0x42,0x50,0xf4,0x91,0xef,0x98,0x7a,0x33,0x54,0x0b,0x43,
  0xed,0xcf,0xac,0x62,0xe4,0xb3,0x1c,0xa9,0xc9,0x08,0xe8,0x95,0x80,0xdf,0x94,0xfa,0x75,0x8f,0x3f,0xa6,0x47,0x07,
  0xa7,0xfc,0xf3,0x73,0x17,0xba,0x83,0x59,0x3c,0x19,0xe6,0x85,0x4f,0xa8,0x68,0x6b,0x81,0xb2,0x71,0x64,0xda,0x8b,
  0xf8,0xeb,0x0f,0x4b,0x70,0x56,0x9d,0x35,0x1e,0x24,0x0e,0x5e,0x63,0x58,0xd1,0xa2,0x25,0x22,0x7c,0x3b,0x01,0x21,
  0x78,0x87,0xd4,0x00,0x46,0x57,0x9f,0xd3,0x27,0x52,0x4c,0x36,0x02,0xe7,0xa0,0xc4,0xc8,0x9e,0xea,0xbf,0x8a,0xd2,
  0x40,0xc7,0x38,0xb5,0xa3,0xf7,0xf2,0xce,0xf9,0x61,0x15,0xa1,0xe0,0xae,0x5d,0xa4,0x9b,0x34,0x1a,0x55,0xad,0x93,
  0x32,0x30,0xf5,0x8c,0xb1,0xe3,0x1d,0xf6,0xe2,0x2e,0x82,0x66,0xca,0x60,0xc0,0x29,0x23,0xab,0x0d,0x53,0x4e,0x6f,
  0xd5,0xdb,0x37,0x45,0xde,0xfd,0x8e,0x2f,0x03,0xff,0x6a,0x72,0x6d,0x6c,0x5b,0x51,0x8d,0x1b,0xaf,0x92,0xbb,0xdd,
  0xbc,0x7f,0x11,0xd9,0x5c,0x41,0x1f,0x10,0x5a,0xd8,0x0a,0xc1,0x31,0x88,0xa5,0xcd,0x7b,0xbd,0x2d,0x74,0xd0,0x12,
  0xb8,0xe5,0xb4,0xb0,0x89,0x69,0x97,0x4a,0x0c,0x96,0x77,0x7e,0x65,0xb9,0xf1,0x09,0xc5,0x6e,0xc6,0x84,0x18,0xf0,
  0x7d,0xec,0x3a,0xdc,0x4d,0x20,0x79,0xee,0x5f,0x3e,0xd7,0xcb,0x39,0x48};

static uint32_t tau(uint32_t a) {
  return (uint32_t)SBOX[a >> 24] << 24 | SBOX[a >> 16 & 255] << 16 | SBOX[a >> 8 & 255] << 8 | SBOX[a & 255];
}

static void sm4_expand(const unsigned char *key, uint32_t rk[32]) {
  static const uint32_t FK[4] = {0xa3b1bac6, 0x56aa3350, 0x677d9197, 0xb27022dc};
  uint32_t k[36];
  for (int i = 0; i < 4; i++) k[i] = be32(key + 4 * i) ^ FK[i];
  for (int i = 0; i < 32; i++) {
    uint32_t ck = 0, b;
    for (int j = 0; j < 4; j++) ck = ck << 8 | (unsigned)(4 * i + j) * 7 % 256;
    b = tau(k[i + 1] ^ k[i + 2] ^ k[i + 3] ^ ck);
    rk[i] = k[i + 4] = k[i] ^ b ^ rotl(b, 13) ^ rotl(b, 23);
  }
}

static void sm4_encrypt(const uint32_t rk[32], const unsigned char *in, unsigned char *out) {
  uint32_t x[36];
  for (int i = 0; i < 4; i++) x[i] = be32(in + 4 * i);
  for (int i = 0; i < 32; i++) {
    uint32_t b = tau(x[i + 1] ^ x[i + 2] ^ x[i + 3] ^ rk[i]);
    x[i + 4] = x[i] ^ b ^ rotl(b, 2) ^ rotl(b, 10) ^ rotl(b, 18) ^ rotl(b, 24);
  }
  for (int i = 0; i < 4; i++) put_be32(out + 4 * i, x[35 - i]);
}

static void counter_add(unsigned char counter[16], uint64_t n) {
  for (int i = 15; i >= 0 && n; i--) {
    n += counter[i];
    counter[i] = (unsigned char)n;
    n >>= 8;
  }
}

static void sm4_ctr(bytes key, bytes iv, uint64_t offset, bytes data) {
  uint32_t rk[32];
  unsigned char counter[16], stream[16];
  sm4_expand(key.data, rk);
  memcpy(counter, iv.data, 16);
  counter_add(counter, offset / 16);
  sm4_encrypt(rk, counter, stream);
  for (size_t i = 0, k = offset % 16; i < data.size; i++, k++) {
    if (k == 16) {
      counter_add(counter, 1);
      sm4_encrypt(rk, counter, stream);
      k = 0;
    }
    data.data[i] ^= stream[k];
  }
}

/* ---- blocks of 32, VQF's rounding */

static float f32_at(const unsigned char *p) { uint32_t u = (uint32_t)le(p, 4); float f; memcpy(&f, &u, 4); return f; }

static void put_f32(unsigned char *p, float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  for (int i = 0; i < 4; i++) p[i] = u >> 8 * i;
}

static float from_f16(uint16_t h) {
  uint32_t e = h >> 10 & 31, m = h & 1023, u = m << 13;
  float f = m / 16777216.0f; /* a subnormal half */
  if (e == 0) memcpy(&u, &f, 4);
  else u |= (e == 31 ? 255 : e + 112) << 23;
  u |= (uint32_t)(h & 0x8000) << 16;
  memcpy(&f, &u, 4);
  return f;
}

static float magnitude(float f) { return f < 0 ? -f : f; }

static uint16_t to_f16(float f) { /* nearest even, subnormals kept, infinite on overflow */
  uint32_t u;
  memcpy(&u, &f, 4);
  uint16_t sign = u >> 16 & 0x8000;
  uint32_t a = u & 0x7fffffff;
  if (a > 0x7f800000) return sign | 0x7e00;
  if (a >= 0x477ff000) return sign | 0x7c00;
  if (a < 0x38800000) { /* below the smallest normal half: in units of 2^-24 */
    volatile float x = magnitude(f) * 16777216.0f + 8388608.0f; /* the sum is rounded to a whole number */
    return sign | (uint16_t)(x - 8388608.0f);
  }
  return sign | (uint16_t)((a - 0x38000000 + 0xfff + (a >> 13 & 1)) >> 13);
}

static void q8_0(const float *x, unsigned char *out) {
  float a = 1e-10f;
  for (int i = 0; i < 32; i++) if (magnitude(x[i]) > a) a = magnitude(x[i]);
  float s = a / 127.0f;
  if (!(s > 1e-10f)) s = 1e-10f;
  uint16_t d = to_f16(s);
  out[0] = d & 255; out[1] = d >> 8;
  float r = 1.0f / s;
  for (int i = 0; i < 32; i++) {
    volatile float t = x[i] * r;
    t = t < 0 ? t - 0.5f : t + 0.5f;
    int q = t != t ? 0 : t > 127 ? 127 : t < -127 ? -127 : (int)t;
    out[2 + i] = (unsigned char)(signed char)q;
  }
}

static void q4_0(const float *x, unsigned char *out) {
  float m = 0;
  for (int i = 0; i < 32; i++) if (magnitude(x[i]) > magnitude(m)) m = x[i];
  float d = m / -8.0f;
  if (d == 0) d = 1;
  uint16_t h = to_f16(d);
  out[0] = h & 255; out[1] = h >> 8;
  float r = 1.0f / d;
  int n[32];
  for (int i = 0; i < 32; i++) {
    volatile float t = x[i] * r;
    t = t + 8.5f;
    n[i] = t != t ? 0 : t > 15 ? 15 : t < 0 ? 0 : (int)t;
  }
  for (int i = 0; i < 16; i++) out[2 + i] = (unsigned char)(n[i] | n[16 + i] << 4);
}

static void quantize(int four, bytes in) {
  size_t size = four ? 18 : 34;
  for (size_t b = 0; b < in.size; b += 128) {
    float x[32];
    unsigned char out[34];
    for (int i = 0; i < 32; i++) x[i] = f32_at(in.data + b + 4 * i);
    (four ? q4_0 : q8_0)(x, out);
    put_hex(out, size);
  }
}

static void dequantize(int four, bytes in) {
  size_t size = four ? 18 : 34;
  for (size_t b = 0; b < in.size; b += size) {
    const unsigned char *p = in.data + b;
    float d = from_f16((uint16_t)le(p, 2));
    unsigned char out[128];
    for (int i = 0; i < 32; i++) {
      int q = four ? (i < 16 ? p[2 + i] & 15 : p[2 + i - 16] >> 4) - 8 : (signed char)p[2 + i];
      put_f32(out + 4 * i, (float)q * d);
    }
    put_hex(out, sizeof out);
  }
}

/* ---- VQF: gates 1 to 7 */

typedef struct { int form; uint32_t n_tensors; uint64_t data_offset, file_len; } header;

static const char *vqf_header(bytes h, uint64_t size, header *out) { /* NULL, or the class of the first fault */
  static const int POSITIVE[] = {16, 20, 24, 32, 36, 40}; /* dim n_layers n_heads head_dim ffn_dim vocab_size */
  if (size < 8 || h.size < 8) return "truncated";
  if (le(h.data, 4) != 0x57465146) return "magic";
  if (le(h.data + 4, 4) != 2 && le(h.data + 4, 4) != 3) return "version";
  if (size < 512 || h.size < 448) return "truncated";
  for (int i = 0; i < 6; i++) if (!le(h.data + POSITIVE[i], 4)) return "header";
  uint64_t tag = le(h.data + 8, 4) & 0x80 ? 32 : 8;
  uint32_t n = (uint32_t)le(h.data + 12, 4);
  header found[2] = {{448, n, le(h.data + 200, 8), le(h.data + 208, 8)}, {432, n, le(h.data + 184, 8), le(h.data + 192, 8)}};
  int formed = 0, fits = 0, which = 0;
  uint64_t expected = 0;
  for (int i = 0; i < 2; i++) {
    header *c = &found[i];
    if (!c->data_offset || c->data_offset % 64 || c->data_offset < 448 + 64 * (uint64_t)n || c->file_len <= c->data_offset)
      continue;
    formed++;
    if (!fits) which = i;
    expected = c->file_len + tag;
    if (c->data_offset < size && size >= tag && c->file_len == size - tag) { fits++; which = i; }
  }
  if (fits == 1) { *out = found[which]; return NULL; }
  if (!fits && formed == 1) return expected > size || expected < tag ? "truncated" : "bounds";
  return "layout";
}

static const char *vqf_directory(bytes d, const header *h) {
  for (uint32_t i = 0; i < h->n_tensors && 64 * (size_t)(i + 1) <= d.size; i++) {
    uint64_t offset = le(d.data + 64 * i + 48, 8), length = le(d.data + 64 * i + 56, 8);
    if (offset < h->data_offset || offset > h->file_len || length > h->file_len - offset) return "bounds";
  }
  return NULL;
}

/* ---- the protocol */

static const char *get(const field *f, int n, const char *name) {
  for (int i = 0; i < n; i++) if (!strcmp(f[i].name, name)) return f[i].value;
  return "";
}

static void operate(const char *op, const field *f, int n) { /* prints what comes behind the id */
  unsigned char out[32];
  if (!strcmp(op, "sm3")) {
    bytes m = unhex(get(f, n, "msg"));
    sm3(m.data, m.size, out);
    printf(" ok digest=");
    put_hex(out, 32);
    free(m.data);
  } else if (!strcmp(op, "hmac_sm3")) {
    bytes k = unhex(get(f, n, "key")), m = unhex(get(f, n, "msg"));
    hmac_sm3(k, m, out);
    printf(" ok tag=");
    put_hex(out, 32);
    free(k.data);
    free(m.data);
  } else if (!strcmp(op, "sm4_ctr")) {
    bytes k = unhex(get(f, n, "key")), iv = unhex(get(f, n, "iv")), d = unhex(get(f, n, "data"));
    if (k.size != 16) printf(" err key");
    else if (iv.size != 16) printf(" err iv");
    else {
      sm4_ctr(k, iv, strtoull(get(f, n, "offset"), NULL, 10), d);
      printf(" ok data=");
      put_hex(d.data, d.size);
    }
    free(k.data);
    free(iv.data);
    free(d.data);
  } else if (!strcmp(op, "fnv1a64")) {
    bytes m = unhex(get(f, n, "msg"));
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < m.size; i++) h = (h ^ m.data[i]) * 0x100000001b3u;
    printf(" ok hash=%016llx", (unsigned long long)h);
    free(m.data);
  } else if (!strcmp(op, "quantize") || !strcmp(op, "dequantize")) {
    int four = !strcmp(get(f, n, "type"), "vqf_q4_0");
    bytes d = unhex(get(f, n, op[0] == 'q' ? "f32" : "data"));
    size_t block = op[0] == 'q' ? 4 * 32 : four ? 18 : 34;
    if (!four && strcmp(get(f, n, "type"), "vqf_q8_0")) printf(" skip");
    else if (d.size % block) printf(" err truncated");
    else if (op[0] == 'q') { printf(" ok data="); quantize(four, d); }
    else { printf(" ok f32="); dequantize(four, d); }
    free(d.data);
  } else if (!strcmp(op, "vqf_header") || !strcmp(op, "vqf_directory")) {
    header h;
    bytes head = unhex(get(f, n, "head")), dir = unhex(get(f, n, "directory"));
    const char *fault = vqf_header(head, strtoull(get(f, n, "size"), NULL, 10), &h);
    if (!fault && op[4] == 'd') fault = vqf_directory(dir, &h);
    if (fault) printf(" err %s", fault);
    else if (op[4] == 'd') printf(" ok n=%u", h.n_tensors);
    else printf(" ok form=%d n_tensors=%u data_offset=%llu file_len=%llu", h.form, h.n_tensors,
                (unsigned long long)h.data_offset, (unsigned long long)h.file_len);
    free(head.data);
    free(dir.data);
  } else {
    printf(" skip");
  }
}

int main(void) {
  static char line[MAX_LINE + 2];
  while (fgets(line, sizeof line, stdin)) {
    field f[16];
    int n = 0;
    line[strcspn(line, "\r\n")] = 0;
    char *id = strtok(line, " "), *op = strtok(NULL, " "), *word;
    if (!id || !op) continue;
    if (!strcmp(id, "hello")) {
      printf("hello vqfref-kat/1 name=adapter.c version=1 "
             "ops=sm3,hmac_sm3,sm4_ctr,fnv1a64,quantize,dequantize,vqf_header,vqf_directory\n");
      fflush(stdout);
      continue;
    }
    while (n < 16 && (word = strtok(NULL, " "))) {
      char *equals = strchr(word, '=');
      if (!equals) continue;
      *equals = 0;
      f[n].name = word;
      f[n++].value = equals + 1;
    }
    printf("%s", id);
    operate(op, f, n);
    printf("\n");
    fflush(stdout);
  }
  return 0;
}
