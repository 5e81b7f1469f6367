// Verifies a token as a service does that trusts the issuer: node verify.js PACKAGES AUDIENCE, where
// PACKAGES is the directory in which npm installed jose. Standard input is a JSON object with the
// issuer's document (`configuration`), its keys (`jwks`), the token and the time (`now`, in seconds).
// Prints the claims.
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import { readFileSync } from 'node:fs';

const [packages, audience] = process.argv.slice(2);
const found = createRequire(`${packages}/package.json`).resolve('jose');
const { createLocalJWKSet, jwtVerify } = await import(pathToFileURL(found));
const { configuration, jwks, token, now } = JSON.parse(readFileSync(0, 'utf8'));
const { payload } = await jwtVerify(token, createLocalJWKSet(jwks), {
  issuer: configuration.issuer,
  audience,
  algorithms: configuration.id_token_signing_alg_values_supported,
  currentDate: new Date(now * 1000),
});
console.log(JSON.stringify(payload));
