// What a program with @kubernetes/client-node does: it says which of its checks have passed.
//
//     node program.js KUBECONFIG NAMESPACE GROUP OLD_VERSION
//
// The kind Widget of the group is there already; OLD_VERSION is too old for a watch of ConfigMaps.

import assert from 'node:assert/strict';
import * as k8s from '@kubernetes/client-node';

const [kubeconfig, namespace, group, oldVersion] = process.argv.slice(2);
const config = new k8s.KubeConfig();
config.loadFromFile(kubeconfig);
const core = config.makeApiClient(k8s.CoreV1Api);
const apps = config.makeApiClient(k8s.AppsV1Api);
const customObjects = config.makeApiClient(k8s.CustomObjectsApi);
const objects = k8s.KubernetesObjectApi.makeApiClient(config);
const WATCHED = `/api/v1/namespaces/${namespace}/configmaps`;

const map = (name, data = {}, labels = undefined) => ({ metadata: { name, labels }, data });
const sorted = (found) => Object.fromEntries(Object.entries(found).sort());

async function refused(code, reason, call) {
  const error = await call().then(() => assert.fail('not refused'), (raised) => raised);
  assert.ok(error instanceof k8s.ApiException, String(error));
  const status = typeof error.body === 'string' ? JSON.parse(error.body) : error.body;
  assert.deepEqual([error.code, status.reason], [code, reason]);
}

const patchedBy = (media) => k8s.setHeaderOptions('Content-Type', `application/${media}+json`);

async function typedObject() {
  const made = await core.createNamespacedConfigMap({ namespace, body: map('one', { a: '1' }) });
  const read = await core.readNamespacedConfigMap({ name: 'one', namespace });
  assert.deepEqual(read, made);
  assert.ok(read.metadata.creationTimestamp instanceof Date);
  read.data = { b: '2' };
  await core.replaceNamespacedConfigMap({ name: 'one', namespace, body: read });
  await refused(409, 'Conflict', () =>
    core.replaceNamespacedConfigMap({ name: 'one', namespace, body: read }));
  const patches = [
    ['json-patch', [{ op: 'add', path: '/data/c', value: '3' }]],
    ['merge-patch', { data: { d: '4' } }],
    ['strategic-merge-patch', { data: { b: null } }],
  ];
  let patched;
  for (const [media, body] of patches) {
    patched = await core.patchNamespacedConfigMap(
      { name: 'one', namespace, body }, patchedBy(media));
  }
  assert.deepEqual(sorted(patched.data), { c: '3', d: '4' });
  const gone = await core.deleteNamespacedConfigMap({ name: 'one', namespace });
  assert.equal(gone.status, 'Success');
}

async function errors() {
  await core.createNamespacedConfigMap({ namespace, body: map('twice') });
  await refused(409, 'AlreadyExists', () =>
    core.createNamespacedConfigMap({ namespace, body: map('twice') }));
  await refused(404, 'NotFound', () => core.readNamespacedConfigMap({ name: 'no', namespace }));
  await refused(422, 'Invalid', () =>
    core.createNamespacedConfigMap({ namespace, body: map('NO') }));
  await refused(403, 'Forbidden', () => core.listNamespacedSecret({ namespace }));
}

async function pages() {
  const names = ['p0', 'p1', 'p2', 'p3', 'p4'];
  for (const name of names) {
    await core.createNamespacedConfigMap({ namespace, body: map(name, {}, { paged: 'y' }) });
  }
  const found = [];
  const wanted = { namespace, limit: 2, labelSelector: 'paged=y' };
  let page = await core.listNamespacedConfigMap(wanted);
  const version = page.metadata.resourceVersion;
  await core.deleteCollectionNamespacedConfigMap({ namespace, labelSelector: 'paged=y' });
  for (;;) {
    assert.equal(page.metadata.resourceVersion, version);
    found.push(...page.items.map((item) => item.metadata.name));
    if (!page.metadata._continue) break;
    page = await core.listNamespacedConfigMap({ ...wanted, _continue: page.metadata._continue });
  }
  assert.deepEqual(found, names);
}

async function workloads() {
  const labels = { app: 'web' };
  const template = {
    metadata: { labels }, spec: { containers: [{ name: 'web', image: 'nginx' }] },
  };
  const body = { metadata: { name: 'web' }, spec: { selector: { matchLabels: labels }, template } };
  const made = await apps.createNamespacedDeployment({ namespace, body });
  assert.deepEqual([made.spec.replicas, made.spec.strategy.type], [1, 'RollingUpdate']);
  const scale = await apps.readNamespacedDeploymentScale({ name: 'web', namespace });
  scale.spec.replicas = 3;
  await apps.replaceNamespacedDeploymentScale({ name: 'web', namespace, body: scale });
  const read = await apps.readNamespacedDeployment({ name: 'web', namespace });
  assert.deepEqual([read.spec.replicas, read.metadata.generation], [3, 2]);
}

// Starts a watch; `seen` gets its events until `isLast` says so.
function watch(query, isLast) {
  const seen = [];
  let controller;
  const ended = new Promise((resolve, reject) => {
    const on = (type, object) => {
      seen.push([type, object?.metadata?.name]);
      if (isLast(type, object)) controller.abort();
    };
    const done = (error) =>
      error && error.name !== 'AbortError' ? reject(error) : resolve(seen);
    new k8s.Watch(config).watch(WATCHED, query, on, done).then(
      (made) => { controller = made; }, reject);
  });
  return ended;
}

async function watches() {
  await core.createNamespacedConfigMap({ namespace, body: map('seen', {}, { seen: 'y' }) });
  const query = {
    labelSelector: 'seen=y', allowWatchBookmarks: true, sendInitialEvents: true,
    resourceVersionMatch: 'NotOlderThan',
  };
  const seen = await watch(query, (type) => {
    if (type === 'BOOKMARK') core.deleteNamespacedConfigMap({ name: 'seen', namespace });
    return type === 'DELETED';
  });
  assert.deepEqual(seen.map(([type]) => type), ['ADDED', 'BOOKMARK', 'DELETED']);
  let status;
  await watch({ resourceVersion: oldVersion }, (type, object) => {
    status = [type, object.code, object.reason];
    return true;
  });
  assert.deepEqual(status, ['ERROR', 410, 'Expired']);
}

async function informers() {
  await core.createNamespacedConfigMap({ namespace, body: map('kept', {}, { kept: 'y' }) });
  const list = () => core.listNamespacedConfigMap({ namespace, labelSelector: 'kept=y' });
  const informer = k8s.makeInformer(config, WATCHED, list, 'kept=y');
  const seen = [];
  const deleted = new Promise((resolve, reject) => {
    informer.on('add', (object) => seen.push(['add', object.metadata.name]));
    informer.on('update', (object) => seen.push(['update', object.data.a]));
    informer.on('delete', resolve);
    informer.on('error', reject);
  });
  await informer.start();
  await core.patchNamespacedConfigMap(
    { name: 'kept', namespace, body: { data: { a: '1' } } },
    patchedBy('strategic-merge-patch'));
  await core.deleteNamespacedConfigMap({ name: 'kept', namespace });
  await deleted;
  assert.deepEqual(seen, [['add', 'kept'], ['update', '1']]);
  assert.deepEqual(informer.list(namespace), []);
  await informer.stop();
}

async function anyObject() {
  const widget = {
    apiVersion: `${group}/v1`, kind: 'Widget', metadata: { name: 'a', namespace },
    spec: { size: 1 },
  };
  const made = await objects.create(widget);
  assert.deepEqual(made.spec, { size: 1, colour: 'grey' });
  const changed = { ...widget, spec: { size: 2 } };
  const patched = await objects.patch(
    changed, undefined, undefined, undefined, undefined, k8s.PatchStrategy.MergePatch);
  assert.equal(patched.spec.size, 2);
  const listed = await objects.list(`${group}/v1`, 'Widget', namespace);
  assert.deepEqual(listed.items.map((item) => item.metadata.name), ['a']);
  const read = await objects.read({ ...widget });
  assert.equal(read.metadata.uid, made.metadata.uid);
  await objects.delete(widget);
  await refused(404, 'NotFound', () => objects.read(widget));
}

async function customResource() {
  const place = { group, version: 'v1', namespace, plural: 'widgets' };
  const body = {
    apiVersion: `${group}/v1`, kind: 'Widget', metadata: { name: 'b' }, spec: { size: 1 },
  };
  await customObjects.createNamespacedCustomObject({ ...place, body });
  const patched = await customObjects.patchNamespacedCustomObjectStatus(
    { ...place, name: 'b', body: { status: { phase: 'ready' } } }, patchedBy('merge-patch'));
  assert.equal(patched.status.phase, 'ready');
  await refused(422, 'Invalid', () =>
    customObjects.patchNamespacedCustomObject(
      { ...place, name: 'b', body: { spec: { size: -1 } } }, patchedBy('merge-patch')));
  const listed = await customObjects.listNamespacedCustomObject(place);
  assert.deepEqual(listed.items.map((item) => item.metadata.name), ['b']);
}

async function whoAndWhat() {
  const reviews = config.makeApiClient(k8s.AuthorizationV1Api);
  const resourceAttributes = { namespace, verb: 'list', resource: 'configmaps' };
  const review = await reviews.createSelfSubjectAccessReview(
    { body: { spec: { resourceAttributes } } });
  assert.equal(review.status.allowed, true);
  const version = await config.makeApiClient(k8s.VersionApi).getCode();
  assert.ok(version.gitVersion.startsWith('v1.36.'));
}

const checks = [
  typedObject, errors, pages, workloads, watches, informers, anyObject, customResource, whoAndWhat,
];
for (const check of checks) {
  await check();
  console.log(`ok ${check.name}`);
}
