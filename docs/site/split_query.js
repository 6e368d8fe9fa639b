// Chinese has no spaces: of each run of Chinese letters, take the longest words that the index has.
var splitQuery = (query) => {
  const known = Search._index ? { ...Search._index.terms, ...Search._index.titleterms } : {};
  const words = [];
  for (const run of query.split(/[^\p{Letter}\p{Number}_]+/gu).filter((word) => word)) {
    for (const part of run.split(/(\p{Script=Han}+)/gu).filter((word) => word)) {
      if (!/\p{Script=Han}/u.test(part)) { words.push(part); continue; }
      for (let start = 0; start < part.length;) {
        let end = part.length;
        while (end > start + 1 && !Object.hasOwn(known, part.slice(start, end))) end--;
        if (end > start + 1 || part.length === 1) words.push(part.slice(start, end));
        start = end;
      }
    }
  }
  return words;
};
