// An OpenID provider for tests: node provider.js PORT PACKAGES, where PACKAGES is the directory in which
// npm installed it.
//
// It listens on 127.0.0.1. Clients get tokens for the audience `sluice` with their credentials: `alice`,
// who is in the group `acme`, and `root`. POST /test/rotate replaces its key: later tokens are signed
// with the new one, and the old one is withdrawn.
import { createServer } from 'node:http';
import { generateKeyPairSync } from 'node:crypto';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [port, packages] = process.argv.slice(2);
const found = createRequire(`${packages}/package.json`).resolve('oidc-provider');
const { Provider } = await import(pathToFileURL(found));
const issuer = `http://127.0.0.1:${port}`;
const groups = { alice: ['acme'], root: [] };

function key(number) {
  const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  const jwk = privateKey.export({ format: 'jwk' });
  return { ...jwk, kid: `key-${number}`, use: 'sig', alg: 'RS256' };
}

function client(name) {
  return {
    client_id: name,
    client_secret: `secret-of-${name}`,
    grant_types: ['client_credentials'],
    redirect_uris: [],
    response_types: [],
  };
}

function provider(number) {
  const made = new Provider(issuer, {
    clients: Object.keys(groups).map(client),
    jwks: { keys: [key(number)] },
    cookies: { keys: ['only for tests'] },
    extraTokenClaims: (_context, token) => ({ groups: groups[token.clientId] }),
    features: {
      devInteractions: { enabled: false },
      clientCredentials: { enabled: true },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: (_context, resource) => ({
          scope: '',
          audience: resource === 'urn:sluice' ? 'sluice' : resource,
          accessTokenTTL: 600,
          accessTokenFormat: 'jwt',
          jwt: { sign: { alg: 'RS256' } },
        }),
      },
    },
  });
  return made.callback();
}

let number = 1;
let answer = provider(number);
createServer((request, response) => {
  if (request.method === 'POST' && request.url === '/test/rotate') {
    number += 1;
    answer = provider(number);
    response.writeHead(204).end();
    return;
  }
  answer(request, response);
}).listen(Number(port), '127.0.0.1');
