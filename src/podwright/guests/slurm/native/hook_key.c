/* A key that stands in for MUNGE: requests and answers carry an HMAC-SHA256, by OpenSSL's library,
 * which is looked for only then and whose header is not needed to build. */
#define _GNU_SOURCE
#include "hook_http.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

enum { MAC_BYTES = 32, NONCE_BYTES = 16 };

const char *hook_key;

static void hexadecimal(const unsigned char *from, size_t length, char *to)
{
	for (size_t k = 0; k < length; k++)
		sprintf(to + 2 * k, "%02x", from[k]);
}

/* The key: the first line of its file, without what ends it. Its length; 0: there is none. */
static int read_key(char *key, int size)
{
	FILE *file = fopen(hook_key, "re");

	if (!file)
		return 0;
	if (!fgets(key, size, file))
		key[0] = '\0';
	fclose(file);
	key[strcspn(key, " \t\r\n")] = '\0';
	return (int)strlen(key);
}

/* The MAC of some bytes, in hexadecimal. False without the key or the library. */
static bool mac_of(const char *data, size_t length, char seal[2 * MAC_BYTES + 1])
{
	static const char *const names[] = {"libcrypto.so.3", "libcrypto.so.1.1", "libcrypto.so.10"};
	static void *library;
	unsigned char *(*hmac)(const void *, const void *, int, const unsigned char *, size_t,
			       unsigned char *, unsigned int *);
	const void *(*sha256)(void);
	unsigned char mac[64];
	unsigned int size = 0;
	char key[512];
	int key_size = read_key(key, sizeof key);

	for (size_t k = 0; !library && k < sizeof names / sizeof *names; k++)
		library = dlopen(names[k], RTLD_NOW);
	if (library && key_size > 0) {
		*(void **)&hmac = dlsym(library, "HMAC");
		*(void **)&sha256 = dlsym(library, "EVP_sha256");
		if (hmac && sha256 &&
		    !hmac(sha256(), key, key_size, (const unsigned char *)data, length, mac, &size))
			size = 0;
	}
	explicit_bzero(key, sizeof key);
	if (size != MAC_BYTES)
		return false;
	hexadecimal(mac, MAC_BYTES, seal);
	return true;
}

char *key_credential(const char *path, const char *body)
{
	unsigned char noise[NONCE_BYTES];
	char nonce[2 * NONCE_BYTES + 1], seal[2 * MAC_BYTES + 1], *message, *made = NULL;
	long long now = (long long)time(NULL);

	if (getrandom(noise, sizeof noise, 0) != sizeof noise)
		return NULL;
	hexadecimal(noise, sizeof noise, nonce);
	if (asprintf(&message, "%lld\n%s\n%s\n%s", now, nonce, path, body) < 0)
		return NULL;
	if (mac_of(message, strlen(message), seal) &&
	    asprintf(&made, "%lld %s %s", now, nonce, seal) < 0)
		made = NULL;
	free(message);
	return made;
}

bool key_vouches(const char *shown, const char *before, const struct answer *said)
{
	size_t begins = strlen(before);
	char *message = malloc(begins + said->length);
	char seal[2 * MAC_BYTES + 1];
	unsigned char differs = 1;

	if (!message)
		return false;
	memcpy(message, before, begins);
	memcpy(message + begins, said->body, said->length);
	if (strlen(shown) == 2 * MAC_BYTES && mac_of(message, begins + said->length, seal)) {
		differs = 0;
		for (size_t k = 0; k < 2 * MAC_BYTES; k++)
			differs |= (unsigned char)(shown[k] ^ seal[k]);
	}
	free(message);
	return !differs;
}
